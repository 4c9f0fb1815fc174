"""What follows from the outcome of a run."""

from __future__ import annotations

import pytest

from dmls_ray.records.metrics import Metric
from dmls_ray.records.outcome import Outcome


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_is_run_again_by_the_same_command_or_is_an_answer_and_only_other_outcomes_are_retried(
    outcome: Outcome,
) -> None:
    assert outcome.is_answer() or not outcome.is_final()
    assert not (outcome.is_retried() and outcome.is_answer())
    assert outcome.gives_up_trial() or not outcome.is_retried()


def test_divergence_gives_up_no_trial_since_it_may_depend_on_the_seed() -> None:
    failed = [outcome for outcome in Outcome if outcome.gives_up_trial()]
    assert failed == [Outcome.OOM, Outcome.TIMEOUT, Outcome.KILLED, Outcome.ERROR]


def test_a_metric_that_is_compared_needs_a_label() -> None:
    with pytest.raises(ValueError, match="faults is compared and has no label"):
        Metric(name="faults", kind="amount", direction="min", scope="rank", is_compared=True)
