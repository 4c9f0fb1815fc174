from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.batch import chart
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import names, panels, points
from tests.analysis.samples import results

GRID = {"batch_per_rank": [16, 32, 64], "world_size": [1, 2]}


def rate(values: dict[str, Any], repeat: int) -> float | None:
    return None if values["batch_per_rank"] == 64 else 10.0 * values["batch_per_rank"] * values["world_size"]


def test_an_epoch_of_a_thousand_samples_takes_a_thousand_by_the_rate_and_what_was_out_of_memory_is_a_cross() -> None:
    (epoch,) = panels(chart(make_table(results(GRID, rate))), 1)
    assert epoch.x.label == "batch_per_rank (samples)"
    assert epoch.y.label == "training time per epoch (s)"
    assert names(epoch) == ["world_size 1", "world_size 2", "oom", "oom"]
    assert points(epoch, "world_size 1") == pytest.approx({16: 6.25, 32: 3.125})
    assert points(epoch, "world_size 2") == pytest.approx({16: 3.125, 32: 1.5625})
    assert points(epoch, "oom") == {64: None}


def test_steps_have_a_panel_where_they_were_timed() -> None:
    runs = results(GRID, rate)
    for record in runs.records:
        record.metrics["step_ms_p50"] = 2.0 * record.config["batch_per_rank"]
    _, step = panels(chart(make_table(runs)), 2)
    assert step.y.label == "median optimizer step (ms)"
    assert points(step, "world_size 1") == {16: 32.0, 32: 64.0}


def test_a_fixed_global_batch_is_the_axis() -> None:
    runs = results({"global_batch": [64, 128], "world_size": [1, 2]}, lambda values, repeat: 100.0)
    (epoch,) = panels(chart(make_table(runs, ("world_size", "global_batch"))), 1)
    assert epoch.x.label == "global_batch (samples)"
    assert list(points(epoch, "world_size 2")) == [64, 128]
