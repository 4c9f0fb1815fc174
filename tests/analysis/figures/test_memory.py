from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.memory import chart, limit_of
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import names, one_panel, points, series
from tests.analysis.samples import MACHINE, results

GRID = {"batch_per_rank": [16, 32, 64], "world_size": [1, 2]}


def runs_of(machine: dict[str, Any], device: str) -> Results:
    """A peak of 100 MiB and one a sample, but a batch of 64 is too much."""
    runs = results(GRID, lambda values, repeat: None if values["batch_per_rank"] == 64 else 100.0)
    for record in runs.records:
        record.machine, record.device = {**MACHINE, **machine}, device
    return runs


def test_a_gpus_memory_is_the_limit_and_its_ooms_lie_on_it() -> None:
    panel = one_panel(chart(make_table(runs_of({"gpu_memory_mib": [300, 400]}, "cuda (Some GPU)"))))
    assert panel.y.label == "peak memory of a rank: allocated (MiB)"
    assert points(panel, "world_size 1") == {16: 116.0, 32: 132.0}
    assert points(panel, "limit: memory of the GPU") == {16: 300.0, 64: 300.0}
    assert points(panel, "oom") == {64: 300.0}
    assert series(panel, "world_size 1").connected
    assert series(panel, "limit: memory of the GPU").dashed
    assert panel.y.from_zero
    assert not panel.y.log


def test_on_a_cpu_the_ranks_share_what_the_host_has_and_the_legend_says_so() -> None:
    panel = one_panel(chart(make_table(runs_of({"memory_mib": 1000}, "cpu"))))
    assert panel.y.label == "peak memory of a rank: resident set (MiB)"
    assert points(panel, "limit: host memory") == {16: 1000.0, 64: 1000.0}
    assert points(panel, "limit: host memory / 2 ranks") == {16: 500.0, 64: 500.0}


def test_a_limit_far_above_the_peaks_makes_the_axis_logarithmic() -> None:
    assert one_panel(chart(make_table(runs_of({"memory_mib": 100_000}, "cpu")))).y.log


@pytest.mark.parametrize(
    ("machine", "device"),
    [({}, "cpu"), ({}, "cuda (Some GPU)"), ({"gpu_memory_mib": []}, "cuda (Some GPU)"), ({"memory_mib": 1000}, "")],
)
def test_a_record_that_does_not_know_the_limit_has_none_drawn(machine: dict[str, Any], device: str) -> None:
    panel = one_panel(chart(make_table(runs_of(machine, device))))
    assert not [name for name in names(panel) if name.startswith("limit")]
    assert points(panel, "oom") == {64: None}


def test_ranks_on_another_machine_than_the_one_described_have_no_known_limit() -> None:
    runs = runs_of({"memory_mib": 1000}, "cpu")
    for record in runs.records:
        for rank in record.ranks:
            rank.machine = "elsewhere" if rank.rank else "lab"
    rows = make_table(runs).rows
    assert next(limit_of(row) for row in rows if row.world_size == 1) == ("limit: host memory", 1000.0)
    assert next(limit_of(row) for row in rows if row.world_size == 2) is None


def test_memory_counts_in_a_search_too() -> None:
    runs = runs_of({}, "cpu")
    for record in runs.records:
        record.mode = "search"
    assert points(one_panel(chart(make_table(runs))), "world_size 2") == {16: 116.0, 32: 132.0}


def test_one_batch_has_no_such_figure() -> None:
    assert chart(make_table(results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda values, repeat: 1.0))) is None
