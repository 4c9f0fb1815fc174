"""What int8 does to accuracy, size and latency: the part of an answer on quantization."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.stats.formatting import RATIO, format_interval, format_value
from dmls_ray.analysis.summary.answer import Finding
from dmls_ray.analysis.summary.claims import Claim
from dmls_ray.analysis.summary.measures import Measure
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.config.until import Until

FIELD = "quantization"

_ACCURACY = Measure("test_accuracy", "points")
_INFERENCE = Measure("inference", "ratio")


_COMPARED = {
    _ACCURACY: ("int8_test_accuracy", "fp32_test_accuracy"),
    _INFERENCE: ("fp32_compiled_ms_p50", "int8_compiled_ms_p50"),
}
"""Measure -> the metrics of one run that are compared by it, the first against the second."""


def quantization_measures(rows: Sequence[Row]) -> list[Measure]:
    """By what an answer on quantization compares int8 with fp32; none where quantization does not vary."""
    if len({row.factors.get("quantization") for row in rows}) < 2:
        return []
    return [
        measure
        for measure, names in _COMPARED.items()
        if any(all(name in row.estimates for name in names) for row in rows)
    ]


def quantization_claims(table: Table) -> Iterator[Claim]:
    """The comparisons of int8 with the same weights in fp32 that the answer makes."""
    others = [name for name in table.varied if name != "quantization"]
    for row in table.rows:
        if row.independent_ranks:
            continue
        place = "".join(f" at {name} {row.factors[name]}" for name in others)
        for measure, contrast in ((_ACCURACY, _changed(row)), (_INFERENCE, _faster(row))):
            if contrast is not None:
                pair = f"int8 by {_kind(row)} quantization against fp32{place}"
                yield Claim("quantization", pair, row, row, measure, contrast)


def quantization_headline(rows: Sequence[Row], until: Until) -> str:
    """What the kind of quantization that loses least accuracy does; empty where none was measured.

    Args:
        rows: the trials.
        until: says which differences count as none.
    """
    quantized = [row for row in rows if "int8_test_accuracy" in row.estimates]
    if not quantized:
        return ""
    row = max(quantized, key=lambda item: item.estimates["int8_test_accuracy"].centre)
    texts = [_accuracy_of(row, until), *([_speed_of(faster, until)] if (faster := _faster(row)) else [])]
    return f"int8 by {_kind(row)} quantization {' and '.join(texts)}."


def _accuracy_of(row: Row, until: Until) -> str:
    changed = _changed(row)
    if changed is None:
        return "has no test accuracy to compare with that of fp32"
    if not _ACCURACY.sign(changed):
        return _undecided(_ACCURACY, changed, until)
    points = _ACCURACY.effect(changed, interval=False).lstrip("+-")
    return f"{'gains' if changed.centre > 0 else 'loses'} {points} of test accuracy"


def _speed_of(faster: Contrast, until: Until) -> str:
    if not _INFERENCE.sign(faster):
        return _undecided(_INFERENCE, faster, until)
    return f"infers {format_value(faster, RATIO, null=1)}x as fast as fp32"


def _undecided(measure: Measure, contrast: Contrast, until: Until) -> str:
    verdict = measure.verdict([contrast], until)
    return f"is {verdict} {'to' if verdict == 'equal' else 'from'} fp32 in {measure.words} ({measure.effect(contrast)})"


def quantization_findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """A line on each kind of quantization."""
    for row in rows:
        if "int8_test_accuracy" not in row.estimates:
            continue
        parts = [f"{row.text('int8_test_accuracy')} in int8"]
        if changed := _changed(row):
            parts.append(f"{_ACCURACY.effect(changed)} against fp32")
        int8_bytes, fp32_bytes = row.text("int8_checkpoint_bytes"), row.text("fp32_checkpoint_bytes")
        if int8_bytes and fp32_bytes:
            parts.append(f"{int8_bytes} bytes for {fp32_bytes}")
        if faster := _faster(row):
            batch = row.records[0].config.get("inference_batch")
            number, bracket, ends = format_interval(faster, RATIO, null=1).partition(" [")
            parts.append(f"inference of {batch} images {number}x{bracket}{ends} as fast, both compiled")
        yield Finding(_kind(row), ", ".join(parts))


def metric_of_form(row: Row, metric: str) -> str:
    """The metric that has the value of a form of the model: without quantization, fp32 is what was tested."""
    is_tested = metric == "fp32_test_accuracy" and _kind(row) == "off"
    return "test_accuracy" if is_tested else metric


def _kind(row: Row) -> str:
    return str(row.records[0].config["quantization"])


def _changed(row: Row) -> Contrast | None:
    """Accuracy in int8 minus that of the same weights in fp32; None where no run has both."""
    return row.comparisons.within(row, *_COMPARED[_ACCURACY], is_ratio=False)


def _faster(row: Row) -> Contrast | None:
    """How fast inference is in int8 against fp32, both compiled; None where no run has both."""
    return row.comparisons.within(row, *_COMPARED[_INFERENCE], is_ratio=True)
