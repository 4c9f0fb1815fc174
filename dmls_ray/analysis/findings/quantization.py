"""What int8 does to accuracy, latency and size, against fp32 in the same runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dmls_ray.analysis.findings.claims import Claim, Pair
from dmls_ray.analysis.findings.effects import Comparison, Effect, effect_of
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


_COMPARED: Mapping[Measure, tuple[str, str]] = MappingProxyType(
    {
        Points("test_accuracy"): ("int8_test_accuracy", "fp32_test_accuracy"),
        Inference("inference"): ("fp32_compiled_ms_p50", "int8_compiled_ms_p50"),
    }
)
"""Measure -> the metrics of one run that are compared by it, the first against the second."""
_SIZE = FileSize("checkpoint_bytes")
_SIZES = ("int8_checkpoint_bytes", "fp32_checkpoint_bytes")


def quantization_measures(rows: Sequence[Row]) -> list[Measure]:
    """By what int8 is compared with fp32; none where quantization does not vary."""
    if len({row.factors.get(FIELD) for row in rows}) < 2:
        return []
    return [measure for measure, names in _COMPARED.items() if any(_has(row, names) for row in rows)]


def quantization_claims(trials: SweepTrials) -> list[Claim]:
    """The comparisons of int8 with the same weights in fp32."""
    others = [name for name in trials.varied if name != FIELD]
    claims = []
    for row in trials.rows:
        if row.independent_ranks:
            continue
        where = ", ".join(f"{name} {row.factors[name]}" for name in others)
        pair = Pair(FIELD, f"int8 by {_kind(row)} vs fp32", where, row, row)
        for measure, names in _COMPARED.items():
            contrast = row.comparisons.within(row, *names, is_ratio=measure.is_ratio)
            if contrast is not None:
                claims.append(Claim(pair, measure, contrast))
    return claims


def quantization_comparisons(trials: SweepTrials) -> list[Comparison]:
    """A comparison for each kind of quantization: accuracy, inference and size of the file."""
    by_pair: dict[tuple[str, str], list[Effect]] = {}
    for claim in quantization_claims(trials):
        effect = effect_of(claim, trials.until)
        by_pair.setdefault(effect.key, []).append(effect)
    comparisons: list[Comparison] = []
    for effects in by_pair.values():
        pair = effects[0].pair
        comparison = [*effects]
        size = pair.row.comparisons.within(pair.row, *_SIZES, is_ratio=True)
        if size is not None:
            ratio = size.centre
            verdict = _SIZE.verdict(size, trials.until)
            comparison.append(Effect(_SIZE, pair, pair.where, ratio, size.low, size.high, size.n, verdict))
        comparisons.append(comparison)
    return comparisons


def metric_of_form(row: Row, metric: str) -> str:
    """The metric that has the value of a form of the model: without quantization, fp32 is what was tested."""
    is_tested = metric == "fp32_test_accuracy" and _kind(row) == "off"
    return "test_accuracy" if is_tested else metric


def _has(row: Row, names: Sequence[str]) -> bool:
    return all(name in row.estimates for name in names)


def _kind(row: Row) -> str:
    return str(row.records[0].config[FIELD])
