"""The samples of all ranks of a run, by those of each."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.records.aggregate import take_results
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult
from tests.run_results import run_of


def rank(number: int, samples: float | None, *, loaded: float, digests: list[int], **run: Any) -> RankResult:
    metrics = {"loaded_per_step": loaded, "step_ms_mean": 10.0}
    if samples is not None:
        metrics |= {"samples_per_step": samples, "samples_per_s": samples * 100}
    of_run = run_of({"counted_by": "loader", "steps_made": 50, **run})
    return RankResult(rank=number, metrics=metrics, sample_digests=digests, run=of_run)


def record_of(*ranks: RankResult) -> RunRecord:
    record = RunRecord(
        run_id="a-0", trial_id="a", repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK,
        config={"world_size": len(ranks)},
    )  # fmt: skip
    take_results(record, ranks)
    return record


@pytest.mark.parametrize(
    ("ranks", "samples", "is_same"),
    [
        ([rank(0, 16, loaded=16, digests=[1, 2]), rank(1, 16, loaded=16, digests=[3, 4])], 32, False),
        ([rank(0, 16, loaded=16, digests=[1, 2]), rank(1, 16, loaded=16, digests=[1, 2])], 16, True),
        # Two ranks share each batch.
        ([rank(n, 8, loaded=8, digests=[n // 2, 7]) for n in range(4)], 16, False),
        # A stage of a pipeline whose samples are not known is given the samples of another one.
        ([rank(0, 32, loaded=32, digests=[5]), rank(1, None, loaded=32, digests=[5])], 32, True),
        # Rank 0 reads for both.
        ([rank(0, 8, loaded=16, digests=[1]), rank(1, 8, loaded=0, digests=[2])], 16, False),
        ([rank(0, 16, loaded=16, digests=[1]), rank(1, 8, loaded=0, digests=[2])], 16, False),
        ([rank(0, 8, loaded=23, digests=[1]), rank(1, 8, loaded=0, digests=[2])], 16, False),
        ([rank(0, 16, loaded=16, digests=[1]), rank(1, None, loaded=0, digests=[2])], 16, False),
        ([rank(0, 16, loaded=16, digests=[1]), rank(1, None, loaded=16, digests=[2])], None, False),
    ],
)
def test_samples_of_ranks_are_added_up_unless_they_are_shared(
    ranks: list[RankResult], samples: float | None, is_same: bool
) -> None:
    record = record_of(*ranks)
    assert record.metrics.get("samples_per_step") == samples
    assert record.metrics.get("samples_per_s") == (None if samples is None else samples * 100)
    assert ("same_samples" in record.facts) == is_same


def test_a_rank_that_trains_nothing_has_no_part_in_the_samples() -> None:
    actor = RankResult(rank=1, outcome=Outcome.ERROR, run=run_of({"without_steps": "none", "samples_unknown": "none"}))
    record = record_of(rank(0, 16, loaded=0, digests=[1]), actor)
    assert (record.metrics["samples_per_step"], record.metrics["samples_per_s"]) == (16, 1600)
    assert "samples_unknown" not in record.facts
    assert record.facts["without_steps"] == "1"


def test_of_ranks_that_make_other_numbers_of_steps_a_step_is_one_of_those_that_make_the_most() -> None:
    often, rarely = (rank(number, 32, loaded=32, digests=[number]) for number in (0, 1))
    rarely.metrics.update(step_ms_mean=20.0, samples_per_s=1600.0)
    record = record_of(often, rarely)
    assert record.facts["uneven_steps"] == "2"
    assert record.metrics["step_ms_mean"] == 10.0
    assert (record.metrics["samples_per_step"], record.metrics["samples_per_s"]) == (48, 4800)
    rarely.metrics.update(step_ms_mean=12.0)  # as ranks of one training differ in a few steps
    assert "uneven_steps" not in record_of(often, rarely).facts


def test_where_one_rank_may_have_trained_or_tested_no_time_of_a_step_is_stated() -> None:
    unclear = rank(0, 16, loaded=16, digests=[1], time_unknown="35%")
    del unclear.metrics["step_ms_mean"], unclear.metrics["samples_per_s"]
    record = record_of(rank(1, 16, loaded=16, digests=[2]), unclear)
    assert record.facts["time_unknown"] == "35%"
    assert record.metrics["samples_per_step"] == 32
    assert not {"step_ms_mean", "samples_per_s"} & record.metrics.keys()


def test_a_run_says_why_its_samples_are_not_known() -> None:
    known = rank(0, 16, loaded=16, digests=[1])
    reason = "loader: 4, model: 3"
    unknown = rank(1, None, loaded=16, digests=[2], samples_unknown=reason)
    assert record_of(known, unknown).facts["samples_unknown"] == reason
    assert "counted_by" not in record_of(known, unknown).facts
    assert "samples_unknown" not in record_of(known, rank(1, 16, loaded=16, digests=[2])).facts


def test_the_word_of_the_user_is_taken_and_what_was_seen_is_kept_where_it_differs() -> None:
    record = record_of(rank(0, 16, loaded=16, digests=[], said={"samples": 64.0, "tokens": 6400.0}))
    assert record.metrics["samples_per_step"] == 64
    assert record.metrics["samples_per_s"] == 6400
    assert record.metrics["tokens_per_s"] == 640_000
    assert record.facts == {"counted_by": "--samples", "samples_differ": "16"}


def test_ranks_that_wait_for_one_that_tests_have_its_time_of_a_step() -> None:
    tests = rank(0, 16, loaded=16, digests=[1])
    tests.metrics.update(counted_share=0.5)
    waits = rank(1, 16, loaded=16, digests=[2])
    waits.metrics.update(step_ms_mean=20.0, counted_share=1.0)
    record = record_of(tests, waits)
    assert record.metrics["step_ms_mean"] == 10
    assert record.metrics["samples_per_s"] == 3200


def test_parts_of_a_model_on_ranks_that_share_their_samples_are_one_model() -> None:
    def part(number: int, digests: list[int], collectives: int) -> RankResult:
        result = rank(number, 16, loaded=16, digests=digests)
        result.parameter_sketch = [10.0, 5.0, float(number), 1.0]
        result.sampled_parameters = [float(number)]
        result.metrics |= {"collectives": collectives, "optimizer_steps": 20}
        return result

    assert not record_of(part(0, [1], 40), part(1, [1], 40)).independent_ranks
    assert record_of(part(0, [1], 0), part(1, [1], 0)).independent_ranks
    assert record_of(part(0, [1], 40), part(1, [2], 40)).independent_ranks
