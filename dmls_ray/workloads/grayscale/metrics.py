"""The metrics of turning images grey, as `turn_grey` returns them."""

from __future__ import annotations

from dmls_ray.records.metric import Metric


def _transfer(name: str, label: str, doc: str) -> Metric:
    return Metric(
        name=name, label=label, kind="amount", direction="min", scope="run", format="seconds", is_time=True, doc=doc
    )


GRAYSCALE_METRICS: tuple[Metric, ...] = (
    Metric(
        name="pass_ms", label="ms", kind="amount", direction="min", scope="run", is_time=True,
        doc="Median of the timed passes over all images.",
    ),
    Metric(
        name="gb_per_s", label="GB/s", kind="rate", direction="max", scope="run", is_time=True,
        doc="Least bytes that a pass reads and writes, per second of pass_ms (10^9 bytes).",
    ),
    Metric(
        name="copy_gb_per_s", label="copy GB/s", kind="rate", direction="max", scope="run", is_time=True,
        doc="Bandwidth of a copy of as many bytes, timed in turn with the passes.",
    ),
    Metric(
        name="of_copy", label="of a copy", kind="ratio", direction="max", scope="run", format="ratio", is_time=True,
        doc="gb_per_s relative to copy_gb_per_s, by pairs of passes.",
    ),
    _transfer("to_device_ms", "to device ms", "Copy of the images to the GPU."),
    _transfer("from_device_ms", "from device ms", "Copy of the grey levels from the GPU."),
    Metric(
        name="levels_apart", label="levels apart", kind="value", direction="min", scope="run", format="whole",
        doc="Largest difference from the float64 reference, in grey levels.",
    ),
)  # fmt: skip
"""In the order of the table's columns. Other values that a run returns are custom metrics."""
