"""Which columns a table has: only those that vary or answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import label_of, table_metrics
from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.stats.formatting import INTEGER, RATIO, format_interval
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Estimate
from dmls_ray.analysis.stats.time_to_target import steps_to_target, time_to_target
from dmls_ray.analysis.table.model import Column, Table
from dmls_ray.analysis.trials.steps import bounds_of
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.metric import Metric
from dmls_ray.records.names import OF_A_FIELD, OF_A_METRIC, OF_A_RECORD
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.registry import registered_metrics

INTERVAL = " [95%]"
"""Ends the head of a column whose values have intervals."""


def columns_of(table: Table) -> list[Column]:
    """The columns of a table that have something in them, in the order a reader wants."""
    columns = table.presentation.columns(table)
    filled = [column for column in columns if column.prefix == OF_A_FIELD or any(map(column.text, table.rows))]
    return _headed(table, filled)


def measure_columns(table: Table, names: Sequence[str]) -> list[Column]:
    """Columns of these measures, and `speed_up`, as far as any trial has them, with intervals where repeats vary; and
    how runs ended.
    """
    columns = []
    for name in names:
        if name == "speed_up":
            columns.append(SPEED_UP)
        elif table.has(name):
            columns.append(metric_column(name, interval=name not in EXACT, answers=name == names[0]))
    return _headed(table, [*columns, *ENDING])


def _headed(table: Table, columns: list[Column]) -> list[Column]:
    """Heads that speak of intervals only where there are some."""
    if any(len(row.counted) >= MIN_REPEATS for row in table.rows):
        return columns
    return [replace(column, head=column.head.removesuffix(INTERVAL)) for column in columns]


def default_columns(table: Table, *, losses: bool = True) -> list[Column]:
    """The columns of training: factors, speed, other metrics, how runs ended.

    Args:
        table: a sweep's table.
        losses: whether losses have columns, with accuracies.
    """
    first = _first_metric(table)
    families: dict[str, list[Column]] = {"first": [], "speed": [], "other": [], "loss": [], "custom": [], "end": []}
    for name, metric in table_metrics().items():
        if not _is_shown(metric, table):
            continue
        family = metric.family if metric.family in families else "other"
        column = metric_column(name, interval=metric.interval)
        if name == first:
            family, column = "first", metric_column(name, interval=True, answers=True)
        elif name == "overfit_epoch":
            column = _column(metric.label, lambda row: row.overfit_epoch, name)
        families[family].append(column)
    for name in table.metric_names:
        if name not in registered_metrics():
            family = "first" if name == first else "custom"
            families[family].append(metric_column(name, interval=True, answers=name == first))
    if not losses:
        families["loss"] = []
    return [
        *factor_columns(table),
        *families["first"],
        *families["speed"],
        SPEED_UP,
        _EFFICIENCY,
        _TARGET_STEPS,
        _TARGET,
        *families["other"],
        _bound_column(table),
        *families["loss"],
        *families["custom"],
        *families["end"],
        *ENDING,
        _OVERSUBSCRIBED,
        _INDEPENDENT,
    ]


def _first_metric(table: Table) -> str:
    """The metric whose column follows the factors: what was searched for; else the speed, or the accuracy."""
    if table.best_by is not None:
        return table.best_by[0]
    if table.has("images_per_s"):
        return "images_per_s"
    return "total_s" if table.is_timed else "test_accuracy"


def _is_shown(metric: Metric, table: Table) -> bool:
    """Whether a table has a column of the metric by default."""
    if metric.is_time and not table.is_timed:
        return False
    if metric.name == "overfit_epoch":
        # By all epochs of its runs, which need not have the metric.
        return "regulariser" in table.asked
    if metric.shown == "always":
        return True
    is_needed = metric.shown == "if_reported" and not any(map(table.has, metric.unless))
    is_asked = bool(table.asked & {*metric.asked_by})
    return table.has(metric.name) and (is_needed or is_asked)


def _bound_column(table: Table) -> Column:
    """What bounds the speed of each trial, where the parts of its steps are known."""
    measured = [row for row in table.rows if "published_on" not in row.records[0].facts]
    bounds = bounds_of(measured, table.varied, table.fixed_batch_field)
    return _column("bound by", lambda row: bounds.get(row.trial_id, ""))


def factor_columns(table: Table) -> list[Column]:
    """A column for each factor that varies."""
    return [_factor(name) for name in table.varied]


def _factor(name: str) -> Column:
    def text(row: Trial) -> str:
        value = row.factors[name]
        return "" if value is None else str(value)

    return Column(name, text, lambda row: {name: row.factors[name]}, OF_A_FIELD)


def metric_column(
    name: str, *, interval: bool = False, answers: bool = False, of: Callable[[Trial], str] | None = None
) -> Column:
    """A metric, registered or custom. A loss is headed by its field; any other registered metric by its label.

    Args:
        name: the metric.
        interval: whether its interval is shown.
        answers: whether a trial of which no run is ok has its outcome here.
        of: the metric that has the value of a row, where it is not the same one in all rows.
    """
    metric = registered_metrics().get(name)
    metric_of = of or (lambda row: name)

    def text(row: Trial) -> str:
        if answers and not row.counted:
            return row.outcome
        text = row.text(metric_of(row), interval=interval)
        if text and row.is_stopped and (metric is None or metric.scope == "epoch"):
            last = max(record.metrics["stopped_epoch"] for record in row.counted)
            text += f" (epoch {last})"
        return text + _of_how_many(row.estimates.get(metric_of(row)), row)

    def values(row: Trial) -> dict[str, Any]:
        names = {f"{name}_{attribute}": attribute for attribute in ("low", "high", "median", "deviation")}
        return _values(row.estimates.get(metric_of(row)), {name: "centre", **names})

    head = name if metric is not None and metric.family == "loss" else label_of(name)
    if interval:
        head += INTERVAL
    return Column(head, text, values, OF_A_METRIC if metric is None else OF_A_RECORD)


def _of_how_many(value: Estimate | Contrast | None, row: Trial) -> str:
    """Of how many runs a value is, where not all have one."""
    return f" ({value.n} of {len(row.counted)})" if value is not None and value.n < len(row.counted) else ""


def _values(item: object, names: Mapping[str, str]) -> dict[str, Any]:
    """Attributes of something under other names; None where there is nothing, so that every row has the same names."""
    return {name: getattr(item, attribute, None) for name, attribute in names.items()}


def _column(head: str, value_of: Callable[[Trial], Any], name: str = "") -> Column:
    """A column of values that are written as they are; of what is so or not, `yes` or nothing.

    Args:
        head: the heading.
        value_of: the value of a row; None where it has none.
        name: that of the value, if it is not the heading.
    """

    def text(row: Trial) -> str:
        value = value_of(row)
        if value is True:
            return "yes"
        return "" if value is None or value is False else str(value)

    return Column(head, text, lambda row: {name or head.replace(" ", "_"): value_of(row)})


def _interval_column(
    head: str, value_of: Callable[[Trial], Any], text_of: Callable[[Any, Trial], str], names: Mapping[str, str]
) -> Column:
    """A column of a value with an interval, which not every row has.

    Args:
        head: the heading, without what it says of intervals.
        value_of: the value of a row; None where it has none.
        text_of: how a value of a row is written.
        names: name of a number -> attribute of the value.
    """

    def text(row: Trial) -> str:
        value = value_of(row)
        return "" if value is None else text_of(value, row)

    return Column(head + INTERVAL, text, lambda row: _values(value_of(row), names))


def _efficiency(row: Trial) -> float | None:
    return row.speed_up.centre / row.world_size if row.speed_up else None


def _efficiency_text(row: Trial) -> str:
    value = _efficiency(row)
    return "" if value is None else RATIO(value)


def _outcomes(row: Trial) -> dict[str, Any]:
    counts = Counter(record.ending for record in row.records)
    return {"outcome": row.outcome} | {kind: counts[kind] for kind in (*map(str, Outcome), "stopped")}


SPEED_UP = _interval_column(
    "speed-up",
    lambda row: row.speed_up,
    lambda value, row: format_interval(value, RATIO, null=1) + _of_how_many(value, row),
    {"speed_up": "centre", "speed_up_low": "low", "speed_up_high": "high"},
)
_EFFICIENCY = Column("efficiency", _efficiency_text, lambda row: {"efficiency": _efficiency(row)})
_TARGET_STEPS = _interval_column(
    "steps to target",
    lambda row: steps_to_target(row.records),
    lambda value, row: value.describe(INTEGER),
    {"target_steps": "median", "target_steps_low": "low", "target_steps_high": "high"},
)
_TARGET = _interval_column(
    "s to target",
    lambda row: time_to_target(row.records),
    lambda value, row: str(value),
    {"target_accuracy": "target", "target_s": "median", "target_s_low": "low", "target_s_high": "high",
     "target_n": "reached"},
)  # fmt: skip
_OVERSUBSCRIBED = _column("oversubscribed", lambda row: any(record.oversubscribed for record in row.records))
_INDEPENDENT = _column("independent ranks", lambda row: bool(row.independent_ranks))
ENDING = (
    _column("n", lambda row: len(row.counted)),
    Column("outcome", lambda row: row.outcome, _outcomes),
    _column("published on", lambda row: row.records[0].facts.get("published_on", "")),
    _column("differs in", lambda row: row.records[0].facts.get("differs_in", "")),
)
"""How many runs count, how all of them ended, and what a row of a published report differs in."""
