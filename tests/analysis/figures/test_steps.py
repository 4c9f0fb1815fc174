from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.steps import (
    communication_chart,
    rank_spread_chart,
    step_parts_chart,
    step_times_chart,
)
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.epoch_and_rank import STEP_QUANTILES, RankRecord
from tests.analysis.figures.reading import names, notes, panels, points, series
from tests.analysis.samples import results
from tests.analysis.trials.test_steps import ALONE, with_parts


def test_the_parts_of_each_trials_steps_stand_on_each_other_and_what_bounds_them_is_said() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: values["batch_per_rank"] * 1000.0)
    with_parts(runs, ALONE)
    found = step_parts_chart(make_table(runs))
    (panel,) = panels(found, 1)
    assert panel.stacked
    assert "communication not overlapped with compute" not in names(panel), "one rank communicates nothing"
    assert sum(points(panel, name)["16"] or 0 for name in names(panel)) == 1.0
    assert notes(found) == [
        "Bound by what a step takes at any batch (launch-bound): batch_per_rank=16; batch_per_rank=32."
    ]


SLOW = {"forward_ms": 3.0, "backward_ms": 5.0, "comm_ms": 5.0, "overlap_ms": 1.0, "exposed_comm_ms": 4.0}
FAST = {"forward_ms": 2.0, "backward_ms": 4.0, "comm_ms": 3.0, "overlap_ms": 1.0, "exposed_comm_ms": 2.0}
RANKS = [RankRecord(rank=0, metrics=FAST), RankRecord(rank=1, metrics=SLOW)]


def with_timers(**axes: Any) -> Results:
    runs = results({"batch_per_rank": 16, "world_size": [1, 2, 4], **axes}, lambda values, repeat: 100.0)
    for record in runs.records:
        if record.config["world_size"] > 1:
            record.ranks = RANKS
    return runs


def test_shares_go_along_the_ranks_from_two_on() -> None:
    exposed, hidden = panels(communication_chart(make_table(with_timers())), 2)
    assert exposed.x.label == "world_size (ranks)"
    assert points(exposed, "measured") == pytest.approx({2: 0.25, 4: 0.25})
    assert points(hidden, "measured") == pytest.approx({2: 1 / 3, 4: 1 / 3})
    assert series(exposed, "measured").connected


def test_one_trial_with_timers_or_none_has_no_such_figure() -> None:
    assert communication_chart(make_table(with_timers(world_size=[1, 2]))) is None
    untimed = results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda values, repeat: 1.0)
    assert communication_chart(make_table(untimed)) is None


def with_quantiles(slowest: float = 50.0) -> Results:
    """Rank 0's steps take 10 to 19 ms, and the slowest a time of its own; rank 1's a millisecond more a repeat."""
    runs = results({"batch_per_rank": [16, 32], "world_size": 2}, lambda values, repeat: 100.0)
    for record in runs.records:
        for rank in record.ranks:
            rank.step_ms_quantiles = [10.0 + place + rank.rank * record.repeat for place in range(9)] + [slowest]
    return runs


def test_shares_of_the_steps_rise_with_the_milliseconds_they_took() -> None:
    (panel,) = panels(step_times_chart(make_table(with_quantiles())), 1)
    assert (panel.x.label, panel.y.label) == ("optimizer step (ms)", "steps done by then (fraction)")
    steps = series(panel, "batch_per_rank 16")
    assert tuple(point.y for point in steps.points) == STEP_QUANTILES
    # Of 10, 10, 10 and 10, 11, 12 the median is 10.
    assert [point.x for point in steps.points] == [*range(10, 19), 50.0]
    assert steps.connected
    assert not panel.x.log


def test_a_step_far_slower_than_the_others_makes_the_axis_logarithmic() -> None:
    (panel,) = panels(step_times_chart(make_table(with_quantiles(slowest=101.0))), 1)
    assert panel.x.log


def test_trials_without_quantiles_have_no_part_in_it() -> None:
    runs = with_quantiles()
    for record in runs.records:
        if record.config["batch_per_rank"] == 16:
            for rank in record.ranks:
                rank.step_ms_quantiles = []
    (panel,) = panels(step_times_chart(make_table(runs)), 1)
    assert names(panel) == ["batch_per_rank 32"]
    assert step_times_chart(make_table(results({"batch_per_rank": 16}, lambda values, repeat: 1.0))) is None


def with_spread(**axes: Any) -> Results:
    """Rank 1 takes 6 ms per step instead of 4, computes 3 ms per pass instead of 1, and needs the memory of rank 0."""
    runs = results({"batch_per_rank": 16, "world_size": 2, **axes}, lambda values, repeat: 100.0)
    for record in runs.records:
        for rank in record.ranks:
            rank.metrics["step_ms_p50"], rank.metrics["tensor_mem_mib"] = 4.0 + 2 * rank.rank, 100.0
            rank.metrics["forward_ms"], rank.metrics["backward_ms"] = 0.5 + rank.rank, 0.5 + rank.rank
    return runs


def test_each_rank_is_shown_by_how_far_it_is_from_the_mean_of_its_run() -> None:
    step, computed, memory = panels(rank_spread_chart(make_table(with_spread())), 3)
    assert points(step, "measured") == pytest.approx({"0": -20.0, "1": 20.0})
    assert points(computed, "measured") == pytest.approx({"0": -50.0, "1": 50.0})
    assert points(memory, "measured") == {"0": 0.0, "1": 0.0}
    assert step.y.label == "median optimizer step (% above mean over ranks)"
    assert points(step, "mean over ranks") == {"0": 0.0, "1": 0.0}


def test_only_memory_is_compared_in_a_search() -> None:
    runs = with_spread()
    for record in runs.records:
        record.mode = "search"
    (memory,) = panels(rank_spread_chart(make_table(runs)), 1)
    assert memory.y.label.startswith("tensor memory")
