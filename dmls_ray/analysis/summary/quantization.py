"""What int8 does to accuracy, size and latency: the part of an answer on quantization."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmls_ray.analysis.metrics import resolution_of
from dmls_ray.analysis.stats.formatting import RATIO, format_interval, format_value
from dmls_ray.analysis.stats.intervals import Estimate, Interval, estimate, is_above, is_below
from dmls_ray.analysis.summary.answer import Finding
from dmls_ray.analysis.summary.measures import Measure
from dmls_ray.analysis.table.row import Row

_ACCURACY = Measure("test_accuracy", "points")


def quantization_headline(rows: Sequence[Row]) -> str:
    """What the kind of quantization that loses least accuracy does; empty where none was measured."""
    quantized = [row for row in rows if "int8_test_accuracy" in row.estimates]
    if not quantized:
        return ""
    row = max(quantized, key=lambda item: item.estimates["int8_test_accuracy"].centre)
    texts = [_accuracy_of(row), *([_speed_of(faster)] if (faster := _faster(row)) else [])]
    return f"int8 by {row.factors['quantization']} quantization {' and '.join(texts)}."


def _accuracy_of(row: Row) -> str:
    changed = _changed(row)
    if not (is_above(changed, 0) or is_below(changed, 0)):
        return "has the test accuracy of fp32 as far as is known"
    points = _ACCURACY.effect(changed, interval=False).lstrip("+-")
    return f"{'gains' if changed.centre > 0 else 'loses'} {points} of test accuracy"


def _speed_of(faster: Estimate) -> str:
    if not (is_above(faster, 1) or is_below(faster, 1)):
        return "infers as fast as far as is known"
    return f"infers {format_value(faster, RATIO)}x as fast as fp32"


def quantization_findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """A line on each kind of quantization."""
    for row in rows:
        if "int8_test_accuracy" not in row.estimates:
            continue
        parts = [f"{row.text('int8_test_accuracy')} in int8, {_ACCURACY.effect(_changed(row))} against fp32"]
        int8_bytes, fp32_bytes = row.text("int8_checkpoint_bytes"), row.text("fp32_checkpoint_bytes")
        if int8_bytes and fp32_bytes:
            parts.append(f"{int8_bytes} bytes for {fp32_bytes}")
        if faster := _faster(row):
            batch = row.records[0].config.get("inference_batch")
            number, bracket, ends = format_interval(faster, RATIO, null=1).partition(" [")
            parts.append(f"inference of {batch} images {number}x{bracket}{ends} as fast, both compiled")
        yield Finding(str(row.factors["quantization"]), ", ".join(parts))


def _changed(row: Row) -> Interval:
    """Accuracy in int8 minus that of the same weights in fp32."""
    int8, fp32 = (row.by_block(f"{form}_test_accuracy") for form in ("int8", "fp32"))
    changed = estimate(
        [int8[block] - fp32[block] for block in int8.keys() & fp32.keys()],
        resolution=resolution_of("int8_test_accuracy", row.counted),
    )
    return Interval(changed.centre, changed.low, changed.high)


def _faster(row: Row) -> Estimate | None:
    """How fast inference is in int8 against fp32, both compiled."""
    before, after = (row.by_block(f"{form}_compiled_ms_p50") for form in ("fp32", "int8"))
    common = before.keys() & after.keys()
    return estimate([before[block] / after[block] for block in common], "ratio") if common else None
