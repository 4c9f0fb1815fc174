"""`SweepTrials`: the trials of a sweep, and what is asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.analysis.findings.questions import Questions, questions_of_rows
from dmls_ray.analysis.findings.stage import Stage
from dmls_ray.analysis.results import Results, factors_of, field_names
from dmls_ray.analysis.trials.axis import Axis
from dmls_ray.analysis.trials.build import factor_names, fixed_batch_field, trials_of
from dmls_ray.analysis.trials.compare import Comparisons
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.until import Until
from dmls_ray.records.model import RunRecord


@dataclass
class SweepTrials:
    """The trials of a sweep, in the order of their fields."""

    varied: tuple[str, ...]
    rows: list[Row]
    fixed_batch_field: str
    """The field that stays constant where ranks or accum_steps change: `batch_per_rank` or `global_batch`."""
    questions: Questions
    """What the workload adds to the comparisons."""
    axis: str = ""
    """The field that the sweep asks about; empty where that is not known."""
    changed: tuple[str, ...] = ()
    """Fields that were changed one at a time."""
    best_by: tuple[str, bool] | None = None
    """What was searched for, and whether less of it is better; None where runs were measured."""
    stage: Stage | None = None
    """How far the sweep is; None if the number of its repeats was given."""

    def axis_of(self, name: str, rows: Sequence[Row]) -> Axis:
        """Groups of some of its trials that differ in one field alone."""
        return Axis.of(rows, name, self.varied, self.fixed_batch_field)

    @property
    def until(self) -> Until:
        """Says which differences count as none."""
        return Until() if self.stage is None else self.stage.until

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics that any trial has, in the order of tables."""
        return field_names([row.estimates for row in self.rows])

    @property
    def constant(self) -> set[str]:
        """Fields that have a column and yet distinguish no rows: one of the two batches, where the other varies."""
        if len(self.rows) < 2:
            return set()
        return {name for name in self.varied if len({repr(row.factors[name]) for row in self.rows}) == 1}

    @property
    def is_timed(self) -> bool:
        """Whether any run was in bench mode, so that its times are comparable."""
        return any(record.mode == "bench" for row in self.rows for record in row.records)

    @property
    def varied_specs(self) -> list[FieldSpec]:
        """The fields that vary, as far as the configuration class of the workload has them."""
        specs = self.questions.workload.specs()
        return [specs[name] for name in self.varied if name in specs]

    @property
    def asked(self) -> set[str]:
        """The fields that vary, and their families: what `Metric.asked_by` names."""
        return {*self.varied, *(spec.setting.family for spec in self.varied_specs)} - {""}

    def has(self, metric: str) -> bool:
        """Whether any trial has this metric, as a field of its records."""
        return any(metric in row.estimates for row in self.rows)


def sweep_trials(
    results: Results, varied: Sequence[str] | None = None, *, best_by: tuple[str, bool] | None = None
) -> SweepTrials:
    """The trials of a sweep, or of a search, with their comparisons.

    Args:
        results: the runs.
        varied: fields that were given several values; without it, those in which the runs differ.
        best_by: a metric, and whether it is to be small, for the best trial first, and those that were stopped after
            those that trained to the end; without it, by the factors.
    """
    by_trial: dict[str, list[RunRecord]] = {}
    for record in results.records:
        by_trial.setdefault(record.trial_id, []).append(record)
    factors: list[Mapping[str, Any]] = [factors_of(records[0]) for records in by_trial.values()]
    names = factor_names(factors, varied)
    rows = trials_of(factors, list(by_trial.values()), names)
    if best_by is not None:
        _sort_by(rows, *best_by)
    stage = None
    if results.until is not None:
        stage = Stage.of(results.records, results.until).without_those_left_out()
    questions = questions_of_rows(rows)
    looks = "none" if stage is None else stage.looks
    comparisons = Comparisons(rows, looks=looks, measures=len(questions.judged(rows)))
    for row in rows:
        row.comparisons = comparisons
    batch = fixed_batch_field(factors, varied or ())
    return SweepTrials(names, rows, batch, questions, best_by=best_by, stage=stage)


def _sort_by(rows: list[Row], metric: str, minimizes: bool) -> None:
    sign = 1 if minimizes else -1
    rows.sort(key=lambda row: sign * (row.value_of(metric) or 0.0))
    rows.sort(key=lambda row: (row.value_of(metric) is None, row.is_stopped))
