"""When the answer says that runs are mostly set-up."""

from __future__ import annotations

import pytest

from dmls_ray.analysis.summary import summarize
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.analysis.words_on_training import set_up_lines
from tests.analysis.samples import results


def trial(set_up_s: float, total_s: float, code: dict[str, str]) -> Trial:
    runs = results({"batch_per_rank": 16}, lambda values, repeat: 1.0)
    for record in runs.records:
        record.metrics |= {"setup_s": set_up_s, "total_s": total_s}
        record.code = code
    return summarize(runs).table.rows[0]


@pytest.mark.parametrize(
    ("set_up_s", "total_s", "code", "preload", "is_said"),
    [
        (4.2, 5.9, {"train.py": "1"}, None, True),
        (4.2, 9.0, {"train.py": "1"}, None, False),
        (0.2, 0.3, {"train.py": "1"}, None, False),
        (4.2, 5.9, {}, None, False),
        (4.2, 5.9, {"train.py": "1"}, "pandas", False),
    ],
    ids=["mostly set-up", "mostly training", "short", "no code of the user", "already given"],
)
def test_preload_is_proposed_where_most_of_a_run_of_a_users_code_is_set_up(
    set_up_s: float, total_s: float, code: dict[str, str], preload: str | None, *, is_said: bool
) -> None:
    lines = set_up_lines(trial(set_up_s, total_s, code), preload)
    assert [("4.2 of the 5.9 s" in line and "--preload" in line) for line in lines] == [True] * is_said


def test_without_a_trial_nothing_is_proposed() -> None:
    assert set_up_lines(None, None) == []
