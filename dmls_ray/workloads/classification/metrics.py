"""What runs of image classification measure besides training: inference, and int8 against fp32."""

from __future__ import annotations

from dmls_ray.records.metrics import TRAINING_METRICS, Metric

_FIELD = "quantization"


def _latency(name: str, label: str, doc: str, *, asked_by: tuple[str, ...] = (), spare: int = 0) -> Metric:
    """Milliseconds of a forward pass on one rank."""
    return Metric(
        name=name, label=label, kind="amount", direction="min", scope="run", format="seconds", asked_by=asked_by,
        spare=spare, doc=doc,
    )  # fmt: skip


def _bytes(form: str) -> Metric:
    """Size of a checkpoint."""
    return Metric(
        name=f"{form}_checkpoint_bytes", label=f"{form} bytes", kind="amount", direction="min", scope="run",
        format="whole", asked_by=(_FIELD,), doc=f"Size of the checkpoint in {form}.",
    )  # fmt: skip


def _detail(name: str, doc: str) -> Metric:
    """A number that is in no table."""
    return Metric(name=name, kind="value", direction="none", scope="run", format="whole", doc=doc)


INFERENCE_METRICS: tuple[Metric, ...] = (
    Metric(
        name="fp32_test_accuracy", label="fp32 test acc.", kind="share", direction="max", scope="run",
        format="accuracy", share_of="test_samples", asked_by=(_FIELD,), spare=2,
        doc="Test accuracy of the trained model in fp32, with quantization.",
    ),
    Metric(
        name="int8_test_accuracy", label="int8 test acc.", kind="share", direction="max", scope="run",
        format="accuracy", share_of="test_samples", asked_by=(_FIELD,), interval=True,
        doc="Test accuracy of the int8 form of the model.",
    ),
    _bytes("fp32"),
    _bytes("int8"),
    _latency("fp32_eager_ms_p50", "fp32 eager ms", "Median latency of inference_batch samples on one rank.", spare=1),
    _latency(
        "fp32_compiled_ms_p50", "fp32 compiled ms", "Median latency of the compiled model in fp32.", asked_by=(_FIELD,)
    ),
    _latency(
        "int8_compiled_ms_p50", "int8 compiled ms", "Median latency of the compiled model in int8.", asked_by=(_FIELD,)
    ),
    _detail("quantize_s", "Seconds of converting and compiling to int8, part of between_s and inference_s."),
    _detail("fp32_eager_ms_p95", "95th percentile of the latency in fp32."),
    _detail("fp32_compiled_ms_p95", "95th percentile of the latency of the compiled model in fp32."),
    _detail("int8_compiled_ms_p95", "95th percentile of the latency of the compiled model in int8."),
)  # fmt: skip

CLASSIFICATION_METRICS = (*TRAINING_METRICS, *INFERENCE_METRICS)
