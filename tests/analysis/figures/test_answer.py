from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.answer import chart
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.records.outcome import Outcome
from tests.analysis.figures.reading import names, panels, points, series
from tests.analysis.samples import results, set_value

GRID = {"batch_per_rank": [16, 32, 64], "world_size": [1, 2]}


def rate(values: dict[str, Any], repeat: int) -> float | None:
    return 10.0 * values["batch_per_rank"] * values.get("world_size", 1)


def asked(runs: Any, axis: str) -> Table:
    table = make_table(runs)
    table.axis = axis
    return table


def test_throughput_and_accuracy_are_drawn_against_the_axis_that_was_asked_about() -> None:
    throughput, accuracy, memory = panels(chart(asked(results(GRID, rate), "batch_per_rank")), 3)
    assert throughput.x.label == accuracy.x.label == "batch_per_rank (samples)"
    assert throughput.y.label == "throughput (images/s)"
    assert accuracy.y.label == "test accuracy (fraction of samples)"
    assert names(throughput) == ["world_size 1", "world_size 2"]
    assert points(throughput, "world_size 2") == pytest.approx({16: 320, 32: 640, 64: 1280})
    assert series(throughput, "world_size 1").connected
    assert memory.y.label == "tensor memory of a rank (MiB)"
    assert points(memory, "world_size 1") == pytest.approx({16: 116, 32: 132, 64: 164})


def test_more_than_four_lines_have_a_panel_for_each_value_of_another_field() -> None:
    grid = {"batch_per_rank": [16, 32], "world_size": [1, 2], "optimizer": ["adam", "sgd", "rmsprop"]}
    drawn = panels(chart(asked(results(grid, rate), "batch_per_rank")), 4)
    assert [panel.title for panel in drawn] == ["world_size 1", "world_size 2"] * 2
    assert names(drawn[0]) == ["optimizer adam", "optimizer sgd", "optimizer rmsprop"]


def test_of_an_axis_with_one_measured_value_the_figure_is_that_of_the_answer() -> None:
    drawn = chart(asked(results({"batch_per_rank": 16, "world_size": [1, 2]}, rate), "batch_per_rank"))
    assert drawn is not None
    assert drawn.title == "Throughput, test accuracy and tensor memory against world_size"


def test_without_an_axis_there_is_no_such_figure() -> None:
    assert chart(make_table(results(GRID, rate))) is None
    assert chart(asked(results({"batch_per_rank": 16}, rate), "batch_per_rank")) is None


def test_choices_are_categories_and_one_that_could_not_be_measured_is_a_cross_at_its_place() -> None:
    runs = results({"precision": ["fp32", "tf32", "amp-bf16"], "batch_per_rank": 16}, rate)
    for record in runs.records:
        if record.config["precision"] == "tf32":
            record.outcome, record.reason = Outcome.SKIPPED, "it needs a GPU"
    for panel in panels(chart(asked(runs, "precision")), 3):
        assert list(panel.x.categories) == ["fp32", "tf32", "amp-bf16"]
        assert points(panel, "skipped") == {"tf32": None}
        assert points(panel, "measured").keys() == {"fp32", "amp-bf16"}
        assert not series(panel, "measured").connected


@pytest.mark.parametrize(
    ("axis", "values", "metric", "label"),
    [
        ("launcher", ["ray", "spawn"], "overhead_s", "start-up (s)"),
        ("dropout", [0.1, 0.5], "accuracy_gap", "accuracy gap (fraction of samples)"),
    ],
)
def test_a_metric_that_the_axis_asks_for_has_a_panel(axis: str, values: list[Any], metric: str, label: str) -> None:
    runs = results({axis: values, "batch_per_rank": 16}, rate)
    for record in runs.records:
        set_value(record, metric, 0.25)
    (panel,) = (item for item in panels(chart(asked(runs, axis)), 4) if item.y.label == label)
    assert points(panel, "measured") == pytest.approx(dict.fromkeys(values, 0.25))
