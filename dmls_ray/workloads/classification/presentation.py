"""How the results of image classification are read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from dmls_ray.analysis.critical_batch import critical_batch
from dmls_ray.analysis.figures import quantization
from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.presentation import Presentation
from dmls_ray.analysis.published.matching import Match, match_training
from dmls_ray.analysis.summary.answer import Answer, cut
from dmls_ray.analysis.summary.axis_answer import answer_along
from dmls_ray.analysis.summary.claims import Claim
from dmls_ray.analysis.summary.critical_batch import answer_on_critical_batch
from dmls_ray.analysis.summary.measures import Measure
from dmls_ray.analysis.summary.quantization import (
    FIELD,
    metric_of_form,
    quantization_claims,
    quantization_findings,
    quantization_headline,
    quantization_measures,
)
from dmls_ray.analysis.table.columns import default_columns, metric_column
from dmls_ray.analysis.table.model import Column, Note, Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord
from dmls_ray.records.training_metrics import LEARNED
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.classification.config import DEFAULTS, TrialConfig


class ClassificationPresentation(Presentation):
    """Accuracies instead of losses, an answer on speed, accuracy and memory, and the published reports."""

    figures: ClassVar[Mapping[str, Callable[[Table], Chart | None]]] = {"quantization": quantization.chart}
    loss_unit = "nats a sample"
    always_named = ("model", "dataset", "epochs", "batch_per_rank", "world_size", "optimizer", "lr")
    verb = "train"
    tunes_training = True

    def columns(self, table: Table) -> list[Column]:
        columns = default_columns(table, losses=False)
        fp32 = metric_column(_FP32_ACCURACY, of=functools.partial(metric_of_form, metric=_FP32_ACCURACY))
        return [fp32 if column.head == fp32.head else column for column in columns]

    def measures(self, rows: Sequence[Row]) -> list[Measure]:
        """Trials that differ in quantization are not compared by accuracy: int8 is compared within each with fp32."""
        measures = super().measures(rows)
        kinds = {row.records[0].config.get(FIELD) for row in rows}
        if len(kinds) == len(rows) > 1:
            return [measure for measure in measures if measure.name not in LEARNED]
        return measures

    def notes(self, rows: Sequence[Row]) -> list[Note]:
        records = [record for row in rows for record in row.counted if record.facts.get("vnni") is False]
        if not records:
            return []
        cpus = sorted({str(record.machine.get("cpu", "an unknown CPU")) for record in records})
        text = (
            f"{' and '.join(cpus)} without VNNI: int8 has no fast instructions there and may be slower than fp32. Its "
            "weights have 7 bits, since sums of products of 8 bits would overflow, so its accuracy may be higher with "
            "VNNI."
        )
        return [Note("comparability", text)]

    def judged(self, rows: Sequence[Row]) -> list[str]:
        """Also int8 against fp32, where quantization varies, and the gap to training, where regularisers do."""
        judged = [*super().judged(rows), *(measure.name for measure in quantization_measures(rows))]
        specs = self.workload.specs()
        varied = [specs[name] for row in rows[:1] for name in row.factors if name in specs]
        has_gap = any("accuracy_gap" in row.estimates for row in rows)
        if has_gap and any(spec.setting.family == "regulariser" for spec in varied):
            judged.append("accuracy_gap")
        return judged

    def claims_within_trials(self, table: Table) -> list[Claim]:
        return list(quantization_claims(table)) if table.axis == FIELD else []

    def answer(self, table: Table, axis: str) -> Answer:
        if axis == "global_batch" and (critical := critical_batch(table)) is not None:
            return answer_on_critical_batch(critical)
        found = answer_along(table, axis)
        if axis != FIELD:
            return found
        lost = [finding for finding in found.findings if finding.topic == "not measured"]
        others = [finding for finding in found.findings if finding not in lost]
        findings = cut([*quantization_findings(table.rows), *others], lost)
        headline = quantization_headline(table.rows, table.until)
        return replace(found, headline=headline or found.headline, findings=findings)

    def can_run(self, row: Row, axis: str, value: Any) -> bool:
        """Whether there is such a configuration, and enough data for it."""
        if axis not in DEFAULTS:
            return False  # a field of a report or of another version: there is no such flag
        config = row.records[0].config
        given = {name: config[name] for name in DEFAULTS if config.get(name) is not None}
        try:
            changed = TrialConfig(**given).replace(**{axis: value})
        except ConfigError:
            return False
        samples = [record.metrics["train_samples"] for record in row.records if "train_samples" in record.metrics]
        return not samples or (changed.global_batch or 0) <= min(samples)

    def scope(self, factors: Sequence[Mapping[str, Any]]) -> str:
        models, datasets = (" and ".join(sorted({str(values.get(name)) for values in factors})) for name in _SCOPE)
        return f"another model or data set than {models} on {datasets}"

    def match(self, record: RunRecord) -> Match | None:
        return match_training(record)


_FP32_ACCURACY = "fp32_test_accuracy"
_SCOPE = ("model", "dataset")
