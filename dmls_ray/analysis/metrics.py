"""What runs are measured by: how each measure is called, written and averaged."""

from __future__ import annotations

from dataclasses import dataclass

from dmls_ray.analysis.stats.formatting import ACCURACY, GENERIC, INTEGER, RATE, RATIO, SECONDS, NumberFormat
from dmls_ray.analysis.stats.intervals import Quantity


@dataclass(frozen=True)
class Measure:
    """One field of a `RunRecord`."""

    head: str
    """With its unit, as the head of a column."""
    quantity: Quantity
    form: NumberFormat
    is_time: bool = False
    """Whether it says nothing where runs went side by side."""


MEASURES: dict[str, Measure] = {
    "images_per_s": Measure("images/s", "rate", RATE, is_time=True),
    "epoch_s": Measure("s/epoch", "amount", SECONDS, is_time=True),
    "total_s": Measure("s/run", "amount", SECONDS, is_time=True),
    "overhead_s": Measure("start-up s", "value", SECONDS, is_time=True),
    "step_ms_p50": Measure("step ms", "amount", SECONDS, is_time=True),
    "exposed_comm_ms": Measure("exposed comm. ms", "amount", SECONDS, is_time=True),
    "link_round_trip_ms": Measure("link round trip ms", "amount", SECONDS, is_time=True),
    "link_mbit_per_s": Measure("link Mbit/s", "rate", RATE, is_time=True),
    "peak_mem_mib": Measure("peak MiB", "amount", INTEGER),
    "stopped_epoch": Measure("stopped after epoch", "value", GENERIC),
    **{f"{part}_loss": Measure(f"{part} loss", "amount", GENERIC) for part in ("train", "test", "validation")},
    **{f"{part}_accuracy": Measure(f"{part} acc.", "share", ACCURACY) for part in ("train", "test", "validation")},
    "accuracy_gap": Measure("acc. gap", "value", ACCURACY),
    "overfit_epoch": Measure("overfit from epoch", "value", GENERIC),
    "fp32_test_accuracy": Measure("fp32 test acc.", "share", ACCURACY),
    "int8_test_accuracy": Measure("int8 test acc.", "share", ACCURACY),
    "fp32_checkpoint_bytes": Measure("fp32 checkpoint bytes", "amount", INTEGER),
    "int8_checkpoint_bytes": Measure("int8 checkpoint bytes", "amount", INTEGER),
    "fp32_eager_ms_p50": Measure("fp32 eager ms", "amount", SECONDS),
    "fp32_compiled_ms_p50": Measure("fp32 compiled ms", "amount", SECONDS),
    "int8_compiled_ms_p50": Measure("int8 compiled ms", "amount", SECONDS),
    "gradient_noise_scale": Measure("noise scale", "amount", GENERIC),
}

OF_IMAGES: dict[str, Measure] = {
    "pass_ms": Measure("ms", "amount", GENERIC, is_time=True),
    "gb_per_s": Measure("GB/s", "rate", GENERIC, is_time=True),
    "copy_gb_per_s": Measure("copy GB/s", "rate", GENERIC, is_time=True),
    "of_copy": Measure("of a copy", "ratio", RATIO, is_time=True),
    "to_device_ms": Measure("to device ms", "amount", SECONDS, is_time=True),
    "from_device_ms": Measure("from device ms", "amount", SECONDS, is_time=True),
    "levels_apart": Measure("levels apart", "value", INTEGER),
}
"""What turning images grey is measured by, of the measures that `dmls_ray.workloads.grayscale` returns."""

TIMES = tuple(name for name, measure in (MEASURES | OF_IMAGES).items() if measure.is_time)
"""Measures that say nothing where runs went side by side."""


def quantity_of(name: str) -> Quantity:
    """What a measure is; one of a user's own may be any number."""
    known = MEASURES.get(name) or OF_IMAGES.get(name)
    return known.quantity if known else "value"
