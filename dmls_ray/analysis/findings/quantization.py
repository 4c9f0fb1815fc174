"""What int8 does to accuracy, latency and size, against fp32 in the same runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmls_ray.analysis.findings.effects import Comparison, Effect, Measure, measure_of
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.axis import Pair, count_values
from dmls_ray.analysis.trials.trial import Trial

FIELD = "quantization"

_COMPARED: Mapping[Measure, tuple[str, str]] = {
    measure_of("test_accuracy", "points"): ("int8_test_accuracy", "fp32_test_accuracy"),
    Measure(metric="inference", kind="ratio", noun="inference speed", better=1): (
        "fp32_compiled_ms_p50",
        "int8_compiled_ms_p50",
    ),
    Measure(metric="checkpoint_bytes", kind="ratio", noun="file size", better=-1, is_judged=False): (
        "int8_checkpoint_bytes",
        "fp32_checkpoint_bytes",
    ),
}
"""Measure -> the metrics of one run that are compared by it, the first against the second."""


def judged_by_quantization(trials: Sequence[Trial]) -> list[str]:
    """By what int8 is compared with fp32; none where quantization does not vary."""
    if count_values(trials, FIELD) < 2:
        return []
    names = []
    for measure, metrics in _COMPARED.items():
        if measure.is_judged and any(trial.estimates.keys() >= {*metrics} for trial in trials):
            names.append(measure.name)
    return names


def quantization_comparisons(trials: SweepTrials) -> list[Comparison]:
    """A comparison of int8 with the same weights in fp32 for each trial: accuracy, inference and size of the file."""
    others = [name for name in trials.varied if name != FIELD]
    comparisons: list[Comparison] = []
    for trial in trials.compared:
        where = ", ".join(f"{name} {trial.factors[name]}" for name in others)
        pair = Pair(FIELD, f"int8 by {_kind(trial)} vs fp32", where, trial, trial)
        effects = []
        for measure, metrics in _COMPARED.items():
            contrast = trial.comparisons.within(trial, *metrics, is_ratio=measure.is_ratio)
            if contrast is not None:
                effects.append(Effect(pair, measure, contrast, trials.until))
        if effects:
            comparisons.append(effects)
    return comparisons


def metric_of_form(trial: Trial, metric: str) -> str:
    """The metric that has the value of a form of the model: without quantization, fp32 is what was tested."""
    is_tested = metric == "fp32_test_accuracy" and _kind(trial) == "off"
    return "test_accuracy" if is_tested else metric


def _kind(trial: Trial) -> str:
    return str(trial.records[0].config[FIELD])
