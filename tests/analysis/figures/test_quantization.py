from __future__ import annotations

import pytest

from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.figures.quantization import chart
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.records.outcome import Outcome
from tests.analysis.figures.reading import panels, points
from tests.analysis.samples import results


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
    found = chart(quantized(["off", "dynamic", "qat"]))
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
    assert chart(quantized(["off", "static"], lost="static")) is None
    table = quantized(["off", "static"], lr=[0.001, 0.1])
    table.axis = "lr"
    assert chart(table) is None
    assert charts(table)[0].name == "answer"
