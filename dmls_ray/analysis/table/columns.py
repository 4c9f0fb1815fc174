"""Which columns a table has: only those that vary or answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import label_of, table_metrics
from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.stats.formatting import INTEGER, RATIO, format_interval
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Estimate
from dmls_ray.analysis.table.model import Column, Table
from dmls_ray.analysis.trials.steps import bounds_of
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.records.metric import Metric
from dmls_ray.records.names import OF_A_FIELD, OF_A_METRIC, OF_A_RECORD
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import BY_NAME
from dmls_ray.workloads.registry import registered_metrics

_OVERFIT_EPOCH = "overfit_epoch"

INTERVAL = " [95%]"
"""Ends the head of a column whose values have intervals."""


def columns_of(table: Table) -> list[Column]:
    """The columns of a table, in the order a reader wants."""
    columns = table.presentation.columns(table)
    filled = [column for column in columns if column.head in table.varied or any(map(column.text, table.rows))]
    return _headed(table, filled)


def measure_columns(table: Table, names: Sequence[str]) -> list[Column]:
    """Columns of these measures, and `speed_up`, as far as any trial has them, with intervals where repeats vary; n and
    outcome.
    """
    columns = []
    for place, name in enumerate(names):
        if name == "speed_up":
            columns += speed_up_column(table)
        elif table.has(name):
            columns.append(metric_column(name, interval=name not in EXACT, answers=place == 0))
    return _headed(table, [*columns, *ending_columns()])


def _headed(table: Table, columns: list[Column]) -> list[Column]:
    """Heads that speak of intervals only where there are some."""
    if any(len(row.counted) >= MIN_REPEATS for row in table.rows):
        return columns
    return [replace(column, head=column.head.removesuffix(INTERVAL)) for column in columns]


def default_columns(table: Table, *, losses: bool = True) -> list[Column]:
    """The columns of training, each where there is something in it: factors, speed, other metrics, how runs ended.

    Args:
        table: a sweep's table.
        losses: whether losses have columns, with accuracies.
    """
    answer = _first_metric(table)
    by_family: dict[str, list[Column]] = {"speed": [], "other": [], "loss": [], "end": []}
    for name, metric in table_metrics().items():
        if _is_shown(metric, table) and name != answer:
            by_family.get(metric.family, by_family["other"]).append(_default_column(metric))
    without_entry = [name for name in table.metric_names if name not in registered_metrics() and name != answer]
    columns = [*factor_columns(table), *_answering_column(table, answer), *by_family["speed"]]
    if any(row.speed_up for row in table.rows):
        columns += [_SPEED_UP, _EFFICIENCY]
    if table.is_timed and any(record.config.get("target_accuracy") for row in table.rows for record in row.records):
        columns += [_TARGET_STEPS, _TARGET]
    columns += [*by_family["other"], *_bound_column(table), *(by_family["loss"] if losses else [])]
    columns += [metric_column(name, interval=True) for name in without_entry]
    columns += by_family["end"] + ending_columns()
    if any(record.oversubscribed for row in table.rows for record in row.records):
        columns.append(_OVERSUBSCRIBED)
    if any(row.independent_ranks for row in table.rows):
        columns.append(_INDEPENDENT)
    return columns


def _first_metric(table: Table) -> str:
    """The metric whose column follows the factors: what was searched for; else the speed, or the accuracy."""
    if table.best_by is not None:
        return table.best_by[0]
    if table.has("images_per_s"):
        return "images_per_s"
    return "total_s" if table.is_timed else "test_accuracy"


def _answering_column(table: Table, name: str) -> list[Column]:
    """The column of the first metric, which also has the outcome of a trial of which no run is ok."""
    metric = table_metrics().get(name)
    is_shown = table.has(name) if metric is None else _is_shown(metric, table)
    return [metric_column(name, interval=True, answers=True, head=_head_of(name))] if is_shown else []


def _is_shown(metric: Metric, table: Table) -> bool:
    """Whether a table has a column of the metric by default."""
    if metric.is_time and not table.is_timed:
        return False
    if metric.name == _OVERFIT_EPOCH:
        # By all epochs of its runs, which need not have the metric.
        return "regulariser" in table.asked
    if metric.shown == "always":
        return True
    is_asked = bool(table.asked & {*metric.asked_by})
    is_needed = metric.shown == "if_reported" and not any(map(table.has, metric.unless))
    return (is_needed or is_asked) and table.has(metric.name)


def _default_column(metric: Metric) -> Column:
    if metric.name == _OVERFIT_EPOCH:
        return _OVERFIT
    return metric_column(metric.name, interval=metric.interval, head=_head_of(metric.name))


def _head_of(name: str) -> str:
    """A loss is headed by its field, with its underscore; any other metric by its label."""
    metric = table_metrics().get(name)
    return name if metric is not None and metric.family == "loss" else ""


def _bound_column(table: Table) -> list[Column]:
    """What bounds the speed of each trial, if the parts of any step are known."""
    measured = [row for row in table.rows if "published_on" not in row.records[0].facts]
    bounds = bounds_of(measured, table.varied, table.fixed_batch_field)
    if not any(bounds.values()):
        return []
    return [
        Column("bound by", lambda row: bounds.get(row.trial_id, ""), lambda row: {"bound_by": bounds.get(row.trial_id)})
    ]


def factor_columns(table: Table) -> list[Column]:
    """A column for each factor that varies."""
    return [_factor(name) for name in table.varied]


def speed_up_column(table: Table) -> list[Column]:
    """The speed-up, if any trial has one."""
    return [_SPEED_UP] if any(row.speed_up for row in table.rows) else []


def ending_columns() -> list[Column]:
    """How many runs count, how all of them ended, and what a row of a published report differs in."""
    return [_COUNT, _OUTCOME, _PUBLISHED_ON, _DIFFERS_IN]


def _factor(name: str) -> Column:
    def text(row: Row) -> str:
        return "" if row.factors[name] is None else str(row.factors[name])

    return Column(name, text, lambda row: {name: row.factors[name]}, OF_A_FIELD)


def metric_column(
    name: str, *, interval: bool = False, answers: bool = False, head: str = "", of: Callable[[Row], str] | None = None
) -> Column:
    """A metric, registered or custom.

    Args:
        name: the metric.
        interval: whether its interval is shown.
        answers: whether a trial of which no run is ok has its outcome here.
        head: the heading; by default the label of the metric.
        of: the metric that has the value of a row, where it is not the same one in all rows.
    """
    metric_of = of or (lambda row: name)

    def text(row: Row) -> str:
        if answers and not row.counted:
            return row.outcome
        metric = metric_of(row)
        text = row.text(metric, interval=interval)
        return f"{text}{_of_how_many(row.estimate(metric), row)}{_when_stopped(row, name) if text else ''}"

    head = (head or label_of(name)) + (INTERVAL if interval else "")
    prefix = OF_A_RECORD if name in registered_metrics() else OF_A_METRIC
    return Column(head, text, lambda row: _numbers(name, row.estimate(metric_of(row))), prefix)


def _of_how_many(value: Estimate | Contrast | None, row: Row) -> str:
    """Of how many runs a value is, where not all have one."""
    return f" ({value.n} of {len(row.counted)})" if value is not None and value.n < len(row.counted) else ""


def _when_stopped(row: Row, name: str) -> str:
    """The epoch that a result of training is of, where it is not the last one."""
    metric = registered_metrics().get(name)
    if not row.is_stopped or (metric is not None and metric.scope != "epoch"):
        return ""
    epochs = sorted({record.metrics["stopped_epoch"] for record in row.counted if record.is_stopped})
    return f" (epoch {' to '.join(map(str, dict.fromkeys((epochs[0], epochs[-1]))))})"


def _numbers(name: str, value: Estimate | None) -> dict[str, Any]:
    """The value has the name of the metric; an unknown value is None, so every row has the same names."""
    names = {f"{name}_{attribute}": attribute for attribute in ("low", "high", "median", "deviation")}
    return _attributes(value, {name: "centre", **names})


def _speed_up_text(row: Row) -> str:
    return f"{format_interval(row.speed_up, RATIO, null=1)}{_of_how_many(row.speed_up, row)}"


def _speed_up(row: Row) -> dict[str, Any]:
    return _attributes(row.speed_up, {"speed_up": "centre", "speed_up_low": "low", "speed_up_high": "high"})


def _attributes(item: object, names: Mapping[str, str]) -> dict[str, Any]:
    """Attributes of something under other names; None where there is nothing."""
    return {name: None if item is None else getattr(item, attribute) for name, attribute in names.items()}


def _efficiency(row: Row) -> float | None:
    return row.speed_up.centre / row.world_size if row.speed_up else None


def _efficiency_text(row: Row) -> str:
    value = _efficiency(row)
    return "" if value is None else RATIO(value)


def _target(row: Row) -> dict[str, Any]:
    names = {"target_accuracy": "target", "target_s": "median", "target_s_low": "low", "target_s_high": "high",
             "target_n": "reached"}  # fmt: skip
    return _attributes(row.time_to_target(), names)


def _target_steps_text(row: Row) -> str:
    reached = row.steps_to_target()
    return "" if reached is None else reached.describe(INTEGER)


def _target_steps(row: Row) -> dict[str, Any]:
    names = {"target_steps": "median", "target_steps_low": "low", "target_steps_high": "high"}
    return _attributes(row.steps_to_target(), names)


def _outcomes(row: Row) -> dict[str, Any]:
    return {
        "outcome": row.outcome,
        **{kind: sum(record.ending == kind for record in row.records) for kind in (*map(str, Outcome), "stopped")},
    }


def _fact_column(name: str) -> Column:
    """A text among the facts of a row's first run."""

    def text(row: Row) -> str:
        return str(row.records[0].facts.get(name, ""))

    return Column(name.replace("_", " "), text, lambda row: {name: text(row)})


_SPEED_UP = Column(f"speed-up{INTERVAL}", _speed_up_text, _speed_up)
_EFFICIENCY = Column("efficiency", _efficiency_text, lambda row: {"efficiency": _efficiency(row)})
_TARGET_STEPS = Column(f"steps to target{INTERVAL}", _target_steps_text, _target_steps)
_TARGET = Column(f"s to target{INTERVAL}", lambda row: str(row.time_to_target() or ""), _target)
_OVERFIT = Column(
    BY_NAME[_OVERFIT_EPOCH].label,
    lambda row: "" if row.overfit_epoch is None else str(row.overfit_epoch),
    lambda row: {"overfit_epoch": row.overfit_epoch},
)
_COUNT = Column("n", lambda row: str(len(row.counted)), lambda row: {"n": len(row.counted)})
_OUTCOME = Column("outcome", lambda row: row.outcome, _outcomes)
_PUBLISHED_ON = _fact_column("published_on")
_DIFFERS_IN = _fact_column("differs_in")
_OVERSUBSCRIBED = Column(
    "oversubscribed",
    lambda row: "yes" if any(record.oversubscribed for record in row.records) else "",
    lambda row: {"oversubscribed": any(record.oversubscribed for record in row.records)},
)
_INDEPENDENT = Column(
    "independent ranks",
    lambda row: "yes" if row.independent_ranks else "",
    lambda row: {"independent_ranks": bool(row.independent_ranks)},
)
