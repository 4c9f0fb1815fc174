"""The loss of each step of a run, over its ranks."""

from __future__ import annotations

from dmls_ray.records.aggregate import take_results
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult


def losses_of(*of_ranks: list[float | None]) -> list[float]:
    run = RunRecord(run_id="t-0", trial_id="t", repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK)
    take_results(run, [RankResult(rank=rank, step_losses=losses) for rank, losses in enumerate(of_ranks)])
    return RunRecord.from_json(run.to_json()).step_losses


def test_the_loss_of_a_step_is_the_mean_over_ranks_up_to_where_one_has_none() -> None:
    assert losses_of([1.0, 2.0, 4.0], [3.0, 4.0]) == [2.0, 3.0]
    assert losses_of([1.0, None, 4.0], [3.0, 4.0, 5.0]) == [2.0]


def test_a_rank_without_any_loss_as_in_a_pipeline_is_left_out() -> None:
    assert losses_of([None, None], [3.0, 4.0]) == [3.0, 4.0]
    assert losses_of([], []) == []
