"""How the results of image classification are read."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.figures.question import QUANTIZATION, metric_of_form, quantization_chart
from dmls_ray.analysis.findings.effects import Comparison, Effect
from dmls_ray.analysis.findings.measures import Measure, measure_of
from dmls_ray.analysis.findings.sweep_trials import Questions, SweepTrials
from dmls_ray.analysis.table.model import OF_A_FIELD, Column, Note, Table, default_columns, metric_column
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.trials.axis import Pair, count_values
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import join_names
from dmls_ray.records.metrics import LEARNED

_OF_INT8: Mapping[Measure, tuple[str, str]] = {
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


class ClassificationPresentation(Presentation):
    """Accuracies instead of losses."""

    figures: ClassVar[Mapping[str, Callable[[Table], Chart | None]]] = {"quantization": quantization_chart}
    loss_unit = "nats a sample"
    always_named = ("model", "dataset", "epochs", "batch_per_rank", "world_size", "optimizer", "lr")

    def columns(self, table: Table) -> list[Column]:
        columns = default_columns(table, losses=False)
        fp32 = metric_column(_FP32_ACCURACY, of=functools.partial(metric_of_form, metric=_FP32_ACCURACY))
        replaced = {fp32.head: fp32, _DROPOUT.head: _DROPOUT}
        return [replaced.get(column.head, column) for column in columns]

    def notes(self, rows: Sequence[Trial]) -> list[Note]:
        notes = [Note("outcome", text) for text in _guessing(rows)]
        notes += [Note("baseline", text) for text in (*_changed_dropout(rows), *_adamw_is_adam(rows))]
        records = [record for row in rows for record in row.counted if record.facts.get("vnni") is False]
        if not records:
            return notes
        cpus = sorted({str(record.machine.get("cpu", "an unknown CPU")) for record in records})
        text = (
            f"{' and '.join(cpus)} without VNNI: int8 has no fast instructions there and may be slower than fp32. Its "
            "weights have 7 bits, since sums of products of 8 bits would overflow, so its accuracy may be higher with "
            "VNNI."
        )
        return [*notes, Note("comparability", text)]


class ClassificationQuestions(Questions):
    """Speed, accuracy and memory; int8 against fp32 in the same runs."""

    def usual_measures(self, rows: Sequence[Trial]) -> list[Measure]:
        """Trials that differ in quantization are not compared by accuracy: int8 is compared within each with fp32."""
        measures = super().usual_measures(rows)
        kinds = {row.records[0].config.get(QUANTIZATION) for row in rows}
        if len(kinds) == len(rows) > 1:
            return [measure for measure in measures if measure.name not in LEARNED]
        return measures

    def judged(self, rows: Sequence[Trial]) -> list[str]:
        """Also int8 against fp32, where quantization varies, and the gap to training, where regularisers do."""
        judged = super().judged(rows)
        if count_values(rows, QUANTIZATION) > 1:
            for measure, metrics in _OF_INT8.items():
                if measure.is_judged and any(row.estimates.keys() >= {*metrics} for row in rows):
                    judged.append(measure.name)
        specs = self.workload.specs()
        varied = [specs[name] for row in rows[:1] for name in row.factors if name in specs]
        has_gap = any("accuracy_gap" in row.estimates for row in rows)
        if has_gap and any(spec.setting.family == "regulariser" for spec in varied):
            judged.append("accuracy_gap")
        return judged

    def comparisons_within_trials(self, trials: SweepTrials) -> list[Comparison]:
        """int8 against the same weights in fp32 of each trial: accuracy, inference and size of the file."""
        comparisons: list[Comparison] = []
        if trials.axis != QUANTIZATION:
            return comparisons
        for row in trials.compared:
            shared = {name: value for name, value in row.factors.items() if name != QUANTIZATION}
            kind = row.records[0].config[QUANTIZATION]
            pair = Pair(row, row, "int8", QUANTIZATION, kind, "fp32", shared)
            effects = []
            for measure, metrics in _OF_INT8.items():
                contrast = row.comparisons.within(row, *metrics, is_ratio=measure.is_ratio)
                if contrast is not None:
                    effects.append(Effect(pair, measure, contrast, trials.until))
            if effects:
                comparisons.append(effects)
        return comparisons


_FP32_ACCURACY = "fp32_test_accuracy"


def _own_dropout(row: Trial) -> float | None:
    """The rate of the model's own dropout, of a trial that leaves it as it is; None where there is none."""
    record = row.records[0]
    measured = row.counted[0].metrics if row.counted else {}
    return measured.get("model_dropout") if record.config.get("dropout") is None else None


_DROPOUT = Column(
    "dropout",
    "dropout",
    lambda row: row.factors.get("dropout") if row.factors.get("dropout") is not None else _own_dropout(row),
    prefix=OF_A_FIELD,
)
"""The rate of dropout, of models that have some, too, where the field sets none."""


def _changed_dropout(rows: Sequence[Trial]) -> Iterator[str]:
    """How the field dropout changes the dropout that a model has of its own."""
    by_model = {row.records[0].config.get("model"): rate for row in rows if (rate := _own_dropout(row)) is not None}
    for model, own in by_model.items():
        configs = [row.records[0].config for row in rows]
        rates = {config["dropout"] for config in configs if config.get("model") == model and config.get("dropout")}
        if changes := [f"dropout={rate:g} changes it from {own:g} to {rate:g}" for rate in sorted(rates - {own})]:
            yield f"Model {model} has dropout of its own with rate {own:g}: {join_names(changes)}."


def _adamw_is_adam(rows: Sequence[Trial]) -> Iterator[str]:
    """That two optimizers are one, where their trials have no weight decay."""
    configs = [row.records[0].config for row in rows]
    if {"adam", "adamw"} <= {config.get("optimizer") for config in configs if not config.get("weight_decay")}:
        yield "Without weight decay, adamw is the same as adam; --weight-decay 0.01 would make them differ."


_BY_CHANCE = 2.0
"""Standard errors above the accuracy of guessing up to which an accuracy is one of guessing."""


def _guessing(rows: Sequence[Trial]) -> Iterator[str]:
    """Which trials have learned nothing that their test accuracy shows."""
    names: dict[int, list[str]] = {}
    for row in rows:
        metrics = row.counted[0].metrics if row.counted else {}
        classes, samples = metrics.get("test_classes"), metrics.get("test_samples")
        accuracy = row.value_of("test_accuracy")
        if not classes or not samples or accuracy is None:
            continue
        by_guess = 1 / classes
        error = math.sqrt(by_guess * (1 - by_guess) / samples)
        if accuracy <= by_guess + _BY_CHANCE * error:
            names.setdefault(round(classes), []).append(describe_configuration(row.factors))
    for number, trials in names.items():
        yield f"{join_names(trials)}: test accuracy is no better than guessing among {number} classes."
