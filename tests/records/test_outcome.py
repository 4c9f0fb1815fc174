from __future__ import annotations

from dmls_ray.records.outcome import Outcome, outcome_counts


def test_outcomes_are_counted_from_the_most_frequent() -> None:
    assert outcome_counts([Outcome.OOM, *[Outcome.OK] * 1200]) == "1,200 ok, 1 oom"
    assert outcome_counts([]) == ""
