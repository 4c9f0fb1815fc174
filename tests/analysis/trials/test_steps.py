from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.steps import TOGETHER, bound_of, step_change, step_parts
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.analysis.words_on_training import why_text
from dmls_ray.records.model import RankRecord
from tests.analysis.samples import own_results, results, set_value

ALONE = {"data_wait_ms": 0.1, "forward_ms": 0.4, "backward_ms": 0.3, "optimizer_ms": 0.1, "rest_ms": 0.1}


def with_parts(runs: Results, parts: Any) -> list[Trial]:
    """The trials of runs whose steps have these parts; a function makes them from the configuration."""
    for record in runs.records:
        for name, value in (parts(record.config) if callable(parts) else parts).items():
            set_value(record, name, value)
    return make_table(runs).rows


def one(parts: dict[str, float], *exposed_ms: float) -> Trial:
    """A trial, with the communication of each rank that compute does not overlap."""
    runs = results({"batch_per_rank": 16}, lambda values, repeat: 1000.0)
    for record in runs.records:
        record.ranks = [RankRecord(rank=rank, metrics={"exposed_comm_ms": ms}) for rank, ms in enumerate(exposed_ms)]
    (row,) = with_parts(runs, parts | ({"exposed_comm_ms": min(exposed_ms)} if exposed_ms else {}))
    return row


def test_the_parts_of_a_step_add_up_and_what_the_mean_rank_waits_longer_is_waiting_for_the_slowest() -> None:
    found = step_parts(one(ALONE, 0.2, 0.6))
    assert found["exposed_comm_ms"] == pytest.approx(0.2)
    assert found["waiting_ms"] == pytest.approx(0.2)
    assert sum(found.values()) == pytest.approx(1.4)


@pytest.mark.parametrize(
    ("changes", "exposed_ms", "bound"),
    [
        ({}, (), "compute or launch"),
        ({"data_wait_ms": 0.5}, (), "input"),
        ({}, (0.5, 0.5), "communication"),
        ({}, (0.0, 1.0), "communication"),  # waiting for the slowest rank
        ({"rest_ms": 0.5}, (), "none"),
    ],
)
def test_what_takes_much_of_a_step_bounds_it(
    changes: dict[str, float], exposed_ms: tuple[float, ...], bound: str
) -> None:
    assert bound_of(one(ALONE | changes, *exposed_ms)) == bound


def bounds_along(steps: dict[int, float], noise: tuple[float, ...] = (1.0, 1.0, 1.0)) -> list[str]:
    """The column of a table whose trials have these steps by their batch; the noise of each repeat turns the other way
    with every second batch.
    """
    batches = list(steps)
    runs = results({"batch_per_rank": batches}, lambda values, repeat: 1000.0)
    for record in runs.records:
        batch = record.config["batch_per_rank"]
        factor = noise[record.repeat] if batches.index(batch) % 2 else 1 / noise[record.repeat]
        for name, value in ALONE.items():
            set_value(record, name, value * steps[batch] * factor)
    table = make_table(runs)
    (column,) = (column for column in table.columns if column.head == "bound by")
    return [column.text(row) for row in table.rows]


@pytest.mark.parametrize(
    ("steps", "bounds"),
    [
        ({16: 1.0, 32: 1.1, 64: 1.9}, ["launch", "compute", "compute"]),
        ({4: 4.35, 8: 4.73, 16: 4.78}, ["launch", "launch", "launch"]),  # the largest batch, too
        ({4: 4.35}, ["compute or launch"]),
        ({16: 1.0, 32: 1.26}, ["launch", "launch"]),  # three quarters of the step are there at any batch
        ({32: 1.26, 64: 2.4}, ["compute", "compute"]),
        ({10: 1.0, 100: 1.5}, ["launch", "launch"]),  # not twice the batch
        ({10: 1.0, 15: 1.5}, ["compute", "compute"]),
        ({16: 2.0, 32: 1.9}, ["launch", "launch"]),
    ],
)
def test_computing_is_told_from_launching_by_how_a_step_grows_with_the_batch(
    steps: dict[int, float], bounds: list[str]
) -> None:
    assert bounds_along(steps) == bounds


def test_steps_that_vary_too_much_do_not_tell_computing_from_launching() -> None:
    assert bounds_along({16: 1.0, 32: 1.5}, (0.7, 1.0, 1.4)) == ["compute or launch"] * 2


def of_ranks(extra: dict[str, float], repeats: int = 3) -> list[Trial]:
    """A trial of one rank with a step of 1 ms, and one of two."""
    runs = results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda values, repeat: 100.0, repeats=repeats)
    both = {name: ALONE.get(name, 0.0) + extra.get(name, 0.0) for name in {*ALONE, *extra}}
    for record in runs.records:
        record.ranks = [RankRecord(rank=0, metrics={"exposed_comm_ms": extra["exposed_comm_ms"]})]
    return with_parts(runs, lambda config: ALONE if config["world_size"] == 1 else both)


def changes(row: Trial, base: Trial) -> dict[str, float]:
    """The parts of a step that take longer, in milliseconds."""
    change = step_change(row, base)
    assert change is not None
    assert sum(change.changes.values()) == pytest.approx(change.step_ms - change.base_ms)
    return {name: round(ms, 3) for name, ms in change.changes.items() if abs(ms) > 1e-9}


def test_where_the_difference_of_two_ranks_goes_is_known_and_adds_up() -> None:
    one_rank, two = of_ranks({"exposed_comm_ms": 0.6, "forward_ms": 0.3, "rest_ms": 0.05})
    assert changes(two, one_rank) == {"exposed_comm_ms": 0.6, "forward_ms": 0.3, "rest_ms": 0.05}
    assert step_change(two, one_rank).samples == 2


def of_wrappers(**measured: float) -> tuple[Trial, Trial]:
    """A trial of two ranks whose communication was measured, as that of DDP is, and one whose was not."""
    runs = results({"batch_per_rank": 16, "world_size": 2, "lr": [0.1, 0.2]}, lambda values, repeat: 100.0)
    ddp, by_hand = with_parts(runs, lambda config: ALONE | (measured if config["lr"] == 0.1 else {}))
    return ddp, by_hand


def test_communication_that_was_measured_of_one_trial_alone_is_no_difference() -> None:
    ddp, by_hand = of_wrappers(exposed_comm_ms=0.5, backward_ms=0.2)
    assert changes(by_hand, ddp) == {TOGETHER: -0.4}
    assert "backward pass with communication" in why_text(step_change(by_hand, ddp))


def test_the_kinds_of_collectives_that_ranks_wait_for_are_said_of_both_trials() -> None:
    sharded, ddp = of_wrappers(exposed_comm_ms=0.5, all_gather_ms=0.3, reduce_scatter_ms=0.2, backward_ms=0.2)
    for record in ddp.records:
        record.metrics["exposed_comm_ms"] = 0.1
    text = why_text(step_change(sharded, ddp))
    waits = "Waiting for collectives outside DDP, in ms a step: 0.30 all-gather, 0.20 reduce-scatter vs "
    assert text.endswith(f"{waits}none.")
    for record in ddp.records:
        record.metrics["unseen_collectives"] = 3.0
    assert why_text(step_change(sharded, ddp)).endswith(f"{waits}not known.")


def test_what_bounds_ranks_whose_communication_was_not_measured_is_not_known() -> None:
    ddp, by_hand = of_wrappers(exposed_comm_ms=0.1)
    assert (bound_of(ddp), bound_of(by_hand)) == ("compute or launch", "")


def test_a_larger_batch_has_its_parts_and_its_samples() -> None:
    runs = results({"batch_per_rank": [16, 64]}, lambda values, repeat: 1000.0)
    small, large = with_parts(runs, lambda config: ALONE | {"forward_ms": config["batch_per_rank"] / 16})
    change = step_change(large, small)
    assert change is not None
    assert change.samples == 4
    assert changes(large, small) == {"forward_ms": 3.0}


def test_samples_that_were_seen_count_more_than_those_of_fields() -> None:
    runs = results({"batch_per_rank": [16, 64]}, lambda values, repeat: 1000.0)
    parts = ALONE | {"samples_per_step": 32.0}
    small, large = with_parts(runs, lambda config: parts | {"forward_ms": config["batch_per_rank"] / 16})
    change = step_change(large, small)
    assert change is not None
    assert change.samples == 1


def test_steps_that_do_not_differ_beyond_chance_have_no_account() -> None:
    runs = results({"batch_per_rank": [16, 64]}, lambda values, repeat: 1000.0)
    small, large = with_parts(runs, ALONE)
    for record, ms in zip(large.records, (4.0, 0.5, 1.0), strict=True):
        record.metrics["forward_ms"] = ms
    assert step_change(large, small) is None
    for record, ms in zip(large.records, (4.0, 3.0, 3.5), strict=True):
        record.metrics["forward_ms"] = ms
    change = step_change(large, small)
    assert change is not None
    assert change.step_ms == pytest.approx(geometric_mean([4.6, 3.6, 4.1]))


@pytest.mark.parametrize(
    ("late_ms", "said"),
    [
        ((0.4, 0.41, 0.42), ", rank 1 is slower than the others by 0.41."),
        ((0.9, -0.5, 0.8), "."),  # within its own spread
        ((0.01, 0.011, 0.012), "."),  # below 5% of the step
    ],
)
def test_a_rank_is_called_slower_only_beyond_its_spread(late_ms: tuple[float, ...], said: str) -> None:
    one_rank, two = of_ranks({"exposed_comm_ms": 0.6})
    for record in two.records:
        slow = ALONE | {"forward_ms": 0.4 + late_ms[record.repeat]}
        record.ranks = [RankRecord(rank=rank, metrics=slow if rank else ALONE) for rank in (0, 1)]
    assert why_text(step_change(two, one_rank)).endswith(f"+0.60 communication{said}")


def test_trials_of_different_versions_have_no_account() -> None:
    one_rank, two = of_ranks({"exposed_comm_ms": 0.6})
    for record in two.records:
        record.versions = {**record.versions, "torch": "3"}
    one_rank, two = make_table(Results(Path(), [*one_rank.records, *two.records])).rows
    assert step_change(two, one_rank) is None


@pytest.mark.parametrize("repeats", [1, 2])
def test_steps_that_are_not_known_to_differ_beyond_chance_have_no_account(repeats: int) -> None:
    one_rank, two = of_ranks({"exposed_comm_ms": 0.6}, repeats)
    assert step_change(two, one_rank) is None


def test_the_parts_that_are_named_add_up_to_the_difference() -> None:
    one_rank, two = of_ranks({"exposed_comm_ms": 1.0, "forward_ms": 0.11, "backward_ms": 0.12, "optimizer_ms": 0.1})
    assert why_text(step_change(two, one_rank)).endswith(": +1.0 communication, +0.3 in smaller parts.")


def test_the_account_is_of_the_blocks_of_one_session() -> None:
    one_rank, two = of_ranks({"exposed_comm_ms": 0.6}, repeats=4)
    for record in (*one_rank.records, *two.records):
        record.session = "first" if record.repeat == 0 else "second"
    for record in one_rank.records[:1]:
        record.session = "long ago"
        record.metrics["forward_ms"] += 100.0
    one_rank, two = make_table(Results(Path(), [*one_rank.records, *two.records])).rows
    change = step_change(two, one_rank)
    assert change is not None
    assert change.step_ms - change.base_ms == pytest.approx(0.6)


def test_a_function_that_waits_for_its_data_is_input_bound() -> None:
    parts = {"data_wait_ms": 3.0, "optimizer_ms": 0.5, "rest_ms": 4.0}
    (row,) = make_table(own_results({"depth": 1}, lambda values, repeat: (1.0, {}))).rows
    assert (step_parts(row), bound_of(row)) == ({}, "")
    (row,) = with_parts(own_results({"depth": 1}, lambda values, repeat: (1.0, {})), parts)
    assert sum(step_parts(row).values()) == pytest.approx(7.5)
    assert bound_of(row) == "input"
