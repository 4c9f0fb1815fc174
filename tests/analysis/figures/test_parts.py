from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.parts import memory_chart, step_parts_chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import names, notes, panels, points, series
from tests.analysis.samples import MACHINE, results, with_memory_kinds
from tests.analysis.trials.test_steps import ALONE, with_parts

GRID = {"batch_per_rank": [16, 32, 64], "world_size": [1, 2]}


def runs_of(machine: dict[str, Any], device: str) -> Results:
    """A peak of 100 MiB and one a sample, but a batch of 64 is too much."""
    runs = results(GRID, lambda values, repeat: None if values["batch_per_rank"] == 64 else 100.0)
    for record in runs.records:
        record.machine, record.device = {**MACHINE, **machine}, device
    return runs


def test_a_gpus_memory_is_the_limit() -> None:
    runs = runs_of({"gpu_memory_mib": [300, 400]}, "cuda (Some GPU)")
    for record in runs.records:
        if record.metrics.get("tensor_mem_mib") is not None:
            record.metrics["device_mem_mib"] = record.metrics["tensor_mem_mib"] + 50
    (panel,) = panels(memory_chart(make_table(runs)), 1)
    assert panel.y.label == "allocated memory of the GPU of a rank (MiB)"
    assert points(panel, "world_size 1") == {16: 166.0, 32: 182.0}
    assert points(panel, "limit: memory of the GPU") == {16: 300.0, 64: 300.0}
    assert points(panel, "oom") == {64: None}
    assert series(panel, "world_size 1").connected
    assert series(panel, "limit: memory of the GPU").dashed
    assert panel.y.from_zero
    assert not panel.y.log


def test_on_a_cpu_the_ranks_share_what_the_host_has_and_the_legend_says_so() -> None:
    (panel,) = panels(memory_chart(make_table(runs_of({"memory_mib": 500}, "cpu"))), 1)
    assert panel.y.label == "tensor memory of a rank (MiB)"
    assert points(panel, "limit: host memory") == {16: 500.0, 64: 500.0}
    assert points(panel, "limit: host memory / 2 ranks") == {16: 250.0, 64: 250.0}


@pytest.mark.parametrize(
    ("machine", "device"),
    [
        ({}, "cpu"),
        ({"gpu_memory_mib": []}, "cuda (Some GPU)"),
        ({"memory_mib": 1000}, ""),
        ({"memory_mib": 100_000}, "cpu"),  # far above the peaks, which could not be read below it
    ],
)
def test_a_limit_that_is_unknown_or_far_away_is_not_drawn(machine: dict[str, Any], device: str) -> None:
    (panel,) = panels(memory_chart(make_table(runs_of(machine, device))), 1)
    assert not [name for name in names(panel) if name.startswith("limit")]
    assert points(panel, "oom") == {64: None}


def test_the_kinds_of_memory_stand_on_each_other_and_add_up_to_the_tensors_in_a_panel_for_each_world_size() -> None:
    runs = results({"batch_per_rank": [16, 32], "world_size": [1, 2]}, lambda values, repeat: 100.0)
    table = make_table(with_memory_kinds(runs))
    first, second, against_batch = panels(memory_chart(table), 3)
    assert first.stacked
    assert (first.title, second.title) == ("world_size 1", "world_size 2")
    assert list(first.x.categories) == ["16", "32"]
    assert names(first) == ["parameter", "gradient", "optimizer", "activation"]
    assert points(first, "activation") == {"16": 16.0, "32": 32.0}
    totals = {label: sum(points(first, name)[label] or 0 for name in names(first)) for label in ("16", "32")}
    assert totals == {str(row.factors["batch_per_rank"]): row.value_of("tensor_mem_mib") for row in table.rows}
    assert not against_batch.stacked
    assert not against_batch.x.log, "a straight line would be a curve"


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
    (panel,) = panels(memory_chart(make_table(runs)), 1)
    assert (panel.x.label, panel.x.categories[0]) == (label, first)
