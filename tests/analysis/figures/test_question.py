from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.figures.question import answer_chart, changes_chart, quantization_chart, search_chart
from dmls_ray.analysis.results import Results
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
    throughput, accuracy, memory = panels(answer_chart(asked(results(GRID, rate), "batch_per_rank")), 3)
    assert throughput.x.label == accuracy.x.label == "batch_per_rank (samples)"
    assert throughput.y.label == "throughput (images/s)"
    assert accuracy.y.label == "test accuracy (fraction of samples)"
    assert names(throughput) == ["world_size 1", "world_size 2"]
    assert points(throughput, "world_size 2") == pytest.approx({16: 320, 32: 640, 64: 1280})
    assert series(throughput, "world_size 1").connected
    assert memory.y.label == "tensor memory of a rank (MiB)"
    assert points(memory, "world_size 1") == pytest.approx({16: 116, 32: 132, 64: 164})


def test_of_an_axis_with_one_measured_value_the_figure_is_that_of_the_answer() -> None:
    drawn = answer_chart(asked(results({"batch_per_rank": 16, "world_size": [1, 2]}, rate), "batch_per_rank"))
    assert drawn.title == "Throughput, test accuracy and tensor memory against world_size"
    assert answer_chart(make_table(results(GRID, rate))) is None, "without an axis"
    assert answer_chart(asked(results({"batch_per_rank": 16}, rate), "batch_per_rank")) is None


def test_choices_are_categories_and_one_that_could_not_be_measured_is_a_cross_at_its_place() -> None:
    runs = results({"precision": ["fp32", "tf32", "amp-bf16"], "batch_per_rank": 16}, rate)
    for record in runs.records:
        if record.config["precision"] == "tf32":
            record.outcome, record.reason = Outcome.SKIPPED, "it needs a GPU"
    for panel in panels(answer_chart(asked(runs, "precision")), 3):
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
    (panel,) = (item for item in panels(answer_chart(asked(runs, axis)), 4) if item.y.label == label)
    assert points(panel, "measured") == pytest.approx(dict.fromkeys(values, 0.25))


def test_many_lines_are_small_multiples_with_a_ring_at_the_best_lr_of_each_batch() -> None:
    best = [(16, 0.001), (32, 0.1)]
    axes = {"batch_per_rank": [16, 32], "world_size": [1, 2], "lr": [0.001, 0.01, 0.1]}
    runs = results(axes, rate)
    for record in runs.records:
        is_best = (record.config["batch_per_rank"], record.config["lr"]) in best
        record.metrics["test_accuracy"] = 0.8 + 0.1 * is_best
    throughput, _, accuracy, other = panels(answer_chart(asked(runs, "batch_per_rank")), 4)
    assert (throughput.title, accuracy.title, other.title) == ("world_size 1", "world_size 1", "world_size 2")
    assert names(throughput) == ["lr 0.001", "lr 0.01", "lr 0.1"]
    rings = [item for item in accuracy.series if item.kind == "ring"]
    assert {ring.points[0].x: ring.same_as for ring in rings} == {16: "lr 0.001", 32: "lr 0.1"}


CHANGES: tuple[dict[str, float], ...] = ({}, {"dropout": 0.3}, {"l1": 0.1}, {"label_smoothing": 0.1, "l1": 0.1})
CHANGED = ("dropout", "l1", "label_smoothing")


def accuracy(values: dict[str, Any], repeat: int) -> float:
    return 0.8 + (values["dropout"] or 0) / 10 - values["l1"] + 0.01 * repeat


def changed(axes: dict[str, Any], variants: Sequence[dict[str, float]] = CHANGES) -> Table:
    runs = results(axes, lambda values, repeat: 100.0, accuracy=accuracy, variants=variants)
    for record in runs.records:
        record.metrics["accuracy_gap"] = 0.1
    table = make_table(runs)
    table.changed, table.axis = CHANGED, "dropout"
    return table


def test_each_change_is_a_category_with_its_interval_and_the_baseline_a_line() -> None:
    found = changes_chart(changed({"batch_per_rank": 16}))
    reached, gap, _ = panels(found, 3)
    assert found.title == "Test accuracy, accuracy gap and throughput by change"
    assert list(reached.x.categories) == ["l1=0.1", "label_smoothing=0.1 l1=0.1", "dropout=0.3"], "as in the table"
    expected = {"dropout=0.3": 0.84, "l1=0.1": 0.71, "label_smoothing=0.1 l1=0.1": 0.71}
    assert points(reached, "measured") == pytest.approx(expected)
    assert all(point.low < point.y < point.high for point in series(reached, "measured").points)  # type: ignore[operator]
    baseline = series(reached, "baseline")
    assert baseline.kind == "line"
    assert points(reached, "baseline") == pytest.approx({"l1=0.1": 0.81, "dropout=0.3": 0.81})
    assert len({(point.low, point.high) for point in baseline.points} - {(None, None)}) == 1
    assert points(gap, "measured") == pytest.approx(dict.fromkeys(gap.x.categories, 0.1))


def test_a_baseline_is_spoken_of_where_there_is_one() -> None:
    axes = {"batch_per_rank": 16}
    found, without = changes_chart(changed(axes)), changes_chart(changed(axes, CHANGES[1:]))
    assert found is not None
    assert without is not None
    assert (len(found.notes), len(without.notes)) == (1, 0)


def test_changes_at_several_points_of_a_grid_are_a_series_each_with_a_baseline() -> None:
    reached, _, _ = panels(changes_chart(changed({"batch_per_rank": [16, 32]})), 3)
    assert names(reached) == [
        "batch_per_rank 16", "baseline, batch_per_rank 16", "batch_per_rank 32", "baseline, batch_per_rank 32"
    ]  # fmt: skip


def test_without_changes_there_is_no_such_figure() -> None:
    table = changed({"batch_per_rank": 16})
    table.changed = ()
    assert changes_chart(table) is None
    table.rows, table.changed = [row for row in table.rows if row.factors["dropout"] is None][:1], CHANGED
    assert changes_chart(table) is None, "the baseline alone"


AXES = {"lr": [0.001, 0.01, 0.1], "optimizer": ["adam", "sgd"], "batch_per_rank": 16}
ACCURACY = ("validation_accuracy", False)


def searched(axes: dict[str, Any] | None = None) -> Results:
    """A search, whose configurations have a validation accuracy by their place in the order."""
    found = results(axes or AXES, lambda values, repeat: 100.0, repeats=1)
    for record in found.records:
        record.mode, record.metrics["validation_accuracy"] = "search", 0.5 + 0.05 * (-1) ** record.order * record.order
    return found


def test_the_metric_is_drawn_by_trial_and_against_each_field_that_was_searched() -> None:
    by_trial, by_optimizer, by_lr = panels(search_chart(make_table(searched(), best_by=ACCURACY)), 3)
    assert {panel.y.label for panel in (by_trial, by_lr, by_optimizer)} == {"validation accuracy (fraction of samples)"}
    assert points(by_trial, "trained to the end") == pytest.approx({1: 0.5, 2: 0.45, 3: 0.6, 4: 0.35, 5: 0.7, 6: 0.25})
    assert points(by_trial, "best so far") == pytest.approx({1: 0.5, 2: 0.5, 3: 0.6, 4: 0.6, 5: 0.7, 6: 0.7})
    assert by_lr.x.log
    assert list(points(by_lr, "trained to the end")) == [0.001, 0.01, 0.1]
    assert list(by_optimizer.x.categories) == ["adam", "sgd"]
    least = panels(search_chart(make_table(searched(), best_by=("validation_accuracy", True))), 3)[0]
    assert points(least, "best so far")[6] == pytest.approx(0.25)
    assert search_chart(make_table(searched())) is None, "runs that were measured"
    assert search_chart(make_table(searched(), best_by=("validation_loss", True))) is None, "no value"


def test_trials_that_were_stopped_are_apart_and_one_without_a_value_is_a_cross() -> None:
    runs = searched()
    by_order = sorted(runs.records, key=lambda record: record.order)
    by_order[4].metrics["stopped_epoch"] = 1
    by_order[5].outcome, by_order[5].reason = Outcome.ERROR, "no such layer"
    by_trial, *_ = panels(search_chart(make_table(runs, best_by=ACCURACY)), 3)
    assert points(by_trial, "stopped early") == pytest.approx({5: 0.7})
    assert points(by_trial, "error") == {6: None}
    assert points(by_trial, "best so far")[4] == pytest.approx(0.6), "a value of an early epoch is not the best"
    assert series(by_trial, "stopped early").muted


def test_the_report_of_a_search_begins_with_it() -> None:
    table = make_table(searched(), best_by=ACCURACY)
    table.axis = "lr"
    drawn = [item.name for item in charts(table)]
    assert drawn[0] == "search"
    assert "answer" not in drawn


def test_of_many_fields_the_first_are_drawn_and_the_others_named() -> None:
    axes = {**AXES, "l1": [0.0, 0.1], "dropout": [0.1, 0.2], "label_smoothing": [0.0, 0.1], "weight_decay": [0.0, 0.1]}
    found = search_chart(make_table(searched(axes), best_by=ACCURACY))
    panels(found, 6)
    assert found.notes == ["5 of 6 fields are drawn; the table has all of them."]


def quantized(kinds: list[str], *, lr: list[float] | None = None, lost: str = "") -> Table:
    axes = {"quantization": kinds, "batch_per_rank": 16, "inference_batch": 32, "lr": lr or [0.001]}
    runs = results(axes, lambda values, repeat: 100.0 if values["quantization"] != "qat" else 50.0)
    for record in runs.records:
        record.metrics["fp32_checkpoint_bytes"], record.metrics["fp32_compiled_ms_p50"] = 27_221, 0.2
        if record.config["quantization"] != "off":
            record.metrics["fp32_test_accuracy"], record.metrics["int8_test_accuracy"] = 0.85, 0.8
            record.metrics["int8_checkpoint_bytes"], record.metrics["int8_compiled_ms_p50"] = 10_943, 0.25
        if record.config["quantization"] == lost:
            record.outcome, record.reason = Outcome.ERROR, "cannot be exported"
    table = make_table(runs)
    table.axis = "quantization"
    return table


def test_accuracy_size_and_latency_are_drawn_in_fp32_and_in_int8_and_the_speed_of_training() -> None:
    found = quantization_chart(quantized(["off", "dynamic", "qat"]))
    accuracy, size, latency, training = panels(found, 4)
    assert points(accuracy, "fp32") == pytest.approx({"off": 0.9, "dynamic": 0.85, "qat": 0.85}), "off: what was tested"
    assert points(accuracy, "int8") == pytest.approx({"dynamic": 0.8, "qat": 0.8})
    assert points(size, "fp32") == dict.fromkeys(("off", "dynamic", "qat"), 27_221)
    assert points(size, "int8") == dict.fromkeys(("dynamic", "qat"), 10_943)
    assert points(latency, "int8") == pytest.approx({"dynamic": 0.25, "qat": 0.25})
    assert points(training, "training") == pytest.approx({"off": 100, "dynamic": 100, "qat": 50})
    assert list(accuracy.x.categories) == ["off", "dynamic", "qat"]


def test_the_report_begins_with_it_and_draws_nowhere_the_accuracy_of_what_was_not_quantized() -> None:
    drawn = [item.name for item in charts(quantized(["off", "dynamic", "qat"]))]
    assert drawn[0] == "quantization"
    assert not {"answer", "tradeoff"} & {*drawn}


def test_without_two_kinds_or_with_another_question_there_is_no_such_figure() -> None:
    assert quantization_chart(quantized(["off", "static"], lost="static")) is None
    table = quantized(["off", "static"], lr=[0.001, 0.1])
    table.axis = "lr"
    assert quantization_chart(table) is None
    assert charts(table)[0].name == "answer"
