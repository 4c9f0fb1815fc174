"""What int8 does to accuracy, latency and size, against fp32 in the same runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dmls_ray.analysis.findings.effects import Comparison, Effect, Pair
from dmls_ray.analysis.findings.measures import Measure, Points, Ratio
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.trial import Row

FIELD = "quantization"


class Inference(Ratio):
    """How fast inference is."""

    noun = "inference speed"
    better = 1


class FileSize(Ratio):
    """How large the file of the weights is."""

    noun = "file size"
    better = -1
    is_judged = False


_COMPARED: Mapping[Measure, tuple[str, str]] = MappingProxyType(
    {
        Points("test_accuracy"): ("int8_test_accuracy", "fp32_test_accuracy"),
        Inference("inference"): ("fp32_compiled_ms_p50", "int8_compiled_ms_p50"),
        FileSize("checkpoint_bytes"): ("int8_checkpoint_bytes", "fp32_checkpoint_bytes"),
    }
)
"""Measure -> the metrics of one run that are compared by it, the first against the second."""


def judged_by_quantization(rows: Sequence[Row]) -> list[str]:
    """By what int8 is compared with fp32; none where quantization does not vary."""
    if len({row.factors.get(FIELD) for row in rows}) < 2:
        return []
    names = []
    for measure, metrics in _COMPARED.items():
        if measure.is_judged and any(row.estimates.keys() >= {*metrics} for row in rows):
            names.append(measure.name)
    return names


def quantization_comparisons(trials: SweepTrials) -> list[Comparison]:
    """A comparison of int8 with the same weights in fp32 for each trial: accuracy, inference and size of the file."""
    others = [name for name in trials.varied if name != FIELD]
    comparisons: list[Comparison] = []
    for row in trials.rows:
        where = ", ".join(f"{name} {row.factors[name]}" for name in others)
        pair = Pair(FIELD, f"int8 by {_kind(row)} vs fp32", where, row, row)
        effects = []
        for measure, metrics in _COMPARED.items():
            contrast = row.comparisons.within(row, *metrics, is_ratio=measure.is_ratio)
            if contrast is not None and not row.independent_ranks:
                effects.append(Effect(pair, measure, contrast, trials.until))
        if effects:
            comparisons.append(effects)
    return comparisons


def metric_of_form(row: Row, metric: str) -> str:
    """The metric that has the value of a form of the model: without quantization, fp32 is what was tested."""
    is_tested = metric == "fp32_test_accuracy" and _kind(row) == "off"
    return "test_accuracy" if is_tested else metric


def _kind(row: Row) -> str:
    return str(row.records[0].config[FIELD])
