from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures import performance
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.scaling_laws import Fit, Points
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import names, panels, points, series
from tests.analysis.samples import MACHINE, results, with_memory_kinds
from tests.analysis.trials.test_steps import ALONE, with_parts

SPEED_UP = {1: 1.0, 2: 1.6, 4: 2.0}


GEOMETRIC = (100 * 101 * 102) ** (1 / 3)


def rate(values: dict[str, Any], repeat: int) -> float:
    return (100 + repeat) * SPEED_UP[values["world_size"]]


def runs_of(**axes: Any) -> Results:
    return results({"batch_per_rank": 16, "world_size": [1, 2, 4], **axes}, rate)


def test_throughput_and_efficiency_are_drawn_with_their_ideal() -> None:
    weak = performance.scaling_chart(make_table(runs_of()))
    strong = performance.scaling_chart(make_table(results({"global_batch": 64, "world_size": [1, 2, 4]}, rate)))
    assert ("weak scaling" in weak.title, "strong scaling" in strong.title) == (True, True)
    throughput, efficiency = panels(weak, 2)
    assert throughput.y.label == "throughput (images/s)"
    assert points(throughput, "measured") == pytest.approx({1: GEOMETRIC, 2: 1.6 * GEOMETRIC, 4: 2 * GEOMETRIC})
    assert points(throughput, "ideal") == pytest.approx({1: GEOMETRIC, 4: 4 * GEOMETRIC})
    assert points(efficiency, "measured") == pytest.approx({1: 1.0, 2: 0.8, 4: 0.5})
    assert points(efficiency, "ideal") == {1: 1.0, 4: 1.0}
    assert series(throughput, "measured").connected
    assert series(throughput, "ideal").dashed
    assert series(throughput, "ideal").same_as == "measured"


def test_without_a_measured_world_size_one_there_is_neither_ideal_nor_efficiency() -> None:
    (throughput,) = panels(performance.scaling_chart(make_table(runs_of(world_size=[2, 4]))), 1)
    assert names(throughput) == ["measured"]


def test_a_world_size_that_was_out_of_memory_is_a_cross_without_a_height() -> None:
    runs = results(
        {"batch_per_rank": 16, "world_size": [1, 2, 4]},
        lambda values, repeat: None if values["world_size"] == 4 else rate(values, repeat),
    )
    throughput, efficiency = panels(performance.scaling_chart(make_table(runs)), 2)
    assert points(throughput, "oom") == {4: None}
    assert points(throughput, "ideal") == pytest.approx({1: GEOMETRIC, 2: 2 * GEOMETRIC})
    assert points(efficiency, "measured") == pytest.approx({1: 1.0, 2: 0.8})


def test_a_fit_is_a_dashed_curve_with_its_interval_over_the_sizes_that_were_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Points] = []

    def fitting(points: Points, *, strong: bool) -> list[Fit]:
        assert not strong
        given.append(points)
        # By each block's own law every further rank is worth 0.4, 0.5 and 0.6 of the first.
        return [Fit("half", lambda ranks, worth: 1 + (ranks - 1) * worth, ((0.4,), (0.5,), (0.6,)))]

    monkeypatch.setattr(performance, "fits", fitting)
    found = performance.scaling_chart(make_table(runs_of()))
    assert found.notes == ["Bands around fitted curves are 95% intervals over 3 blocks, each with its fit."]
    throughput, efficiency = panels(found, 2)
    assert given == [{2: pytest.approx({0: 1.6, 1: 1.6, 2: 1.6}), 4: pytest.approx({0: 2.0, 1: 2.0, 2: 2.0})}]
    mean = (2.2 * 2.5 * 2.8) ** (1 / 3)
    curve = points(throughput, "half")
    assert (min(curve), max(curve)) == (1, 4)
    assert curve[4] == pytest.approx(mean * GEOMETRIC)
    assert points(efficiency, "half")[4] == pytest.approx(mean / 4)
    last = series(efficiency, "half").points[-1]
    assert last.low < 2.2 / 4 < 2.8 / 4 < last.high
    assert series(throughput, "half").dashed


GRID = {"batch_per_rank": [16, 32, 64], "world_size": [1, 2]}


def with_limit(machine: dict[str, Any], device: str) -> Results:
    """A peak of 100 MiB and one a sample, but a batch of 64 is too much."""
    runs = results(GRID, lambda values, repeat: None if values["batch_per_rank"] == 64 else 100.0)
    for record in runs.records:
        record.machine, record.device = {**MACHINE, **machine}, device
    return runs


def test_a_gpus_memory_is_the_limit() -> None:
    runs = with_limit({"gpu_memory_mib": [300, 400]}, "cuda (Some GPU)")
    for record in runs.records:
        if record.metrics.get("tensor_mem_mib") is not None:
            record.metrics["device_mem_mib"] = record.metrics["tensor_mem_mib"] + 50
    (panel,) = panels(performance.memory_chart(make_table(runs)), 1)
    assert panel.y.label == "allocated memory of the GPU of a rank (MiB)"
    assert points(panel, "world_size 1") == {16: 166.0, 32: 182.0}
    assert points(panel, "limit: memory of the GPU") == {16: 300.0, 64: 300.0}
    assert points(panel, "oom") == {64: None}
    assert series(panel, "world_size 1").connected
    assert series(panel, "limit: memory of the GPU").dashed
    assert panel.y.from_zero
    assert not panel.y.log


@pytest.mark.parametrize(
    ("machine", "device"),
    [
        ({}, "cpu"),
        ({"gpu_memory_mib": []}, "cuda (Some GPU)"),
        ({"gpu_memory_mib": [100_000]}, "cuda (Some GPU)"),  # far above the peaks, which could not be read below it
    ],
)
def test_a_limit_that_is_unknown_or_far_away_is_not_drawn(machine: dict[str, Any], device: str) -> None:
    (panel,) = panels(performance.memory_chart(make_table(with_limit(machine, device))), 1)
    assert not [name for name in names(panel) if name.startswith("limit")]
    assert points(panel, "oom") == {64: None}


def test_the_kinds_of_memory_stand_on_each_other_and_add_up_to_the_tensors_in_a_panel_for_each_world_size() -> None:
    runs = results({"batch_per_rank": [16, 32], "world_size": [1, 2]}, lambda values, repeat: 100.0)
    table = make_table(with_memory_kinds(runs))
    first, second, against_batch = panels(performance.memory_chart(table), 3)
    assert first.stacked
    assert (first.title, second.title) == ("world_size 1", "world_size 2")
    assert list(first.x.categories) == ["16", "32"]
    assert names(first) == ["parameter", "gradient", "optimizer", "activation"]
    assert points(first, "activation") == {"16": 16.0, "32": 32.0}
    totals = {label: sum(points(first, name)[label] or 0 for name in names(first)) for label in ("16", "32")}
    assert totals == {str(row.factors["batch_per_rank"]): row.value_of("tensor_mem_mib") for row in table.rows}
    assert not against_batch.stacked
    assert not against_batch.x.log, "a straight line would be a curve"


def test_the_parts_of_each_trials_steps_stand_on_each_other() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: values["batch_per_rank"] * 1000.0)
    with_parts(runs, ALONE)
    (panel,) = panels(performance.step_parts_chart(make_table(runs)), 1)
    assert panel.stacked
    assert "communication not overlapped with compute" not in names(panel), "one rank communicates nothing"
    assert sum(points(panel, name)["16"] or 0 for name in names(panel)) == 1.0


def test_the_time_of_an_epoch_and_of_a_step_goes_along_the_batch() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 10.0 * values["batch_per_rank"])
    with_parts(runs, lambda config: {"step_ms_p50": 2.0 * config["batch_per_rank"]})
    epoch, step = panels(performance.time_chart(make_table(runs)), 2)
    assert points(epoch, "measured") == pytest.approx({16: 6.25, 32: 3.125}), "of a thousand samples"
    assert points(step, "measured") == {16: 32.0, 32: 64.0}


def test_communication_is_a_share_of_a_step_along_the_ranks_from_two_on() -> None:
    runs = runs_of()
    timers = {"comm_ms": 4.0, "overlap_ms": 3.0, "exposed_comm_ms": 1.0}
    with_parts(runs, lambda config: ALONE | (timers if config["world_size"] > 1 else {}))
    exposed, hidden = panels(performance.communication_chart(make_table(runs)), 2)
    assert points(exposed, "measured") == pytest.approx({2: 0.5, 4: 0.5})
    assert points(hidden, "measured") == pytest.approx({2: 0.75, 4: 0.75})


@pytest.mark.parametrize(
    ("axes", "label", "first"),
    [
        ({"optimizer": ["adam", "sgd"]}, "optimizer", "adam"),
        ({"optimizer": ["adam", "sgd"], "precision": ["fp32", "amp-bf16"]}, "trial", "optimizer adam, precision fp32"),
    ],
)
def test_bars_of_trials_that_no_batch_joins_have_a_fields_values_or_labels(
    axes: dict[str, Any], label: str, first: str
) -> None:
    runs = with_memory_kinds(results({"batch_per_rank": 16, **axes}, lambda values, repeat: 100.0))
    (panel,) = panels(performance.memory_chart(make_table(runs)), 1)
    assert (panel.x.label, panel.x.categories[0]) == (label, first)
