"""`Table`: the trials of a sweep as rows, its columns and its notes; and which columns it has.

One module because a table as data has columns that are made from the table.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import TYPE_CHECKING, Any, Literal

from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.metrics import is_exact, label_of, metric_of, table_metrics
from dmls_ray.analysis.stats.formatting import INTEGER, SECONDS, ratio_text
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Estimate, Interval
from dmls_ray.analysis.stats.learning import TimeToTarget, steps_to_target, time_to_target
from dmls_ray.analysis.trials.common_metrics import common_rate, durations_of
from dmls_ray.analysis.trials.disturbances import held_clocks
from dmls_ray.analysis.trials.run_lengths import were_ended_apart
from dmls_ray.analysis.trials.steps import bounds_of
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import OF_A_FIELD, OF_A_METRIC, OF_A_RECORD, RESERVED

if TYPE_CHECKING:
    import pandas as pd

OF_AN_INTERVAL = "interval_"
"""Prefix of an end of the interval of a metric whose name is taken, as `acc_low` next to a metric `acc_low`."""
COUNTED = "counted_share"
"""The metric whose column says which part of a run its rates are of."""
_ROUNDING = 1e-6
INTERVAL = " [95%]"
"""Ends the head of a column whose values have intervals."""


@dataclass(frozen=True)
class Column:
    """One column of a table: the cell of each trial, as text and as a number."""

    head: str
    name: str
    """Of its numbers, for programs that read the table."""
    value: Callable[[Trial], Any]
    """A number, a text or what has a `centre`, as an interval; None where a trial has none."""
    written: Callable[[Trial], str] | None = None
    """The text of a cell, if it is not the value as it is."""
    ends: Sequence[str] = ()
    """Attributes of an interval that programs read besides its centre."""
    prefix: str = ""
    """Precedes a heading that another column has, too; empty: the heading stays."""

    @property
    def title(self) -> str:
        """The heading without what it says of intervals."""
        return self.head.removesuffix(INTERVAL)

    def text(self, row: Trial) -> str:
        if self.written is not None:
            return self.written(row)
        value = self.value(row)
        return "" if value is None else str(value)


def _distinct(columns: Sequence[Column], attribute: Literal["head", "name"]) -> list[str]:
    """Distinct heads or names of columns: of two that have the same, the last that has a prefix gets it."""
    found: list[str] = [getattr(column, attribute) for column in columns]
    counts = Counter([*RESERVED, *found])
    for index in reversed(range(len(found))):
        prefix = columns[index].prefix
        while prefix and counts[found[index]] > 1:
            counts[found[index]] -= 1
            found[index] = prefix + found[index]
            counts[found[index]] += 1
    return found


NoteKind = Literal[
    "held_fixed", "measured_on", "comparability", "baseline", "method", "scaled", "outcome", "unfinished", "repeats"
]


@dataclass(frozen=True)
class Note:
    """A sentence below a table."""

    kind: NoteKind
    text: str


@dataclass
class Table(SweepTrials):
    """The trials of a sweep as rows, with columns and notes."""

    typed_notes: list[Note] = field(default_factory=list)
    """Sentences below the table."""
    columns: list[Column] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """The texts of its notes."""
        return [note.text for note in self.typed_notes]

    def cells(self, columns: Sequence[Column] | None = None) -> dict[str, list[str]]:
        """The cells as text, one column per heading; of some columns, or of all."""
        columns = columns or self.columns
        cells = {}
        for head, column in zip(_distinct(columns, "head"), columns, strict=True):
            cells[head] = [column.text(row) for row in self.rows]
        return cells

    def frame(self, columns: Sequence[Column] | None = None) -> pd.DataFrame:
        """`cells` for pandas."""
        import pandas as pd

        return pd.DataFrame(self.cells(columns), dtype=object)

    def numbers(self, columns: Sequence[Column] | None = None) -> pd.DataFrame:
        """The cells, of some columns or of `all_columns`, as numbers: of each metric the mean and the ends of its
        interval.
        """
        import pandas as pd

        columns = columns or all_columns(self)
        names = _distinct(columns, "name")
        cells: dict[str, list[Any]] = {}
        for name, column in zip(names, columns, strict=True):
            values = [column.value(row) for row in self.rows]
            cells[name] = [getattr(value, "centre", value) for value in values]
            for attribute in column.ends:
                end = f"{name}_{attribute}"
                while end in names:
                    end = OF_AN_INTERVAL + end
                cells[end] = [getattr(value, attribute, None) for value in values]
        return pd.DataFrame(cells)


def all_columns(table: Table) -> list[Column]:
    """The columns of a table, and then those of losses and details, which a page does not have."""
    columns = list(table.columns)
    for column in further_columns(table):
        metric = metric_of(column.name)
        is_left_out = metric.shown == "detail" or metric.family == "loss"
        if is_left_out and any(column.text(row) for row in table.rows):
            columns.append(column)
    return columns


def further_columns(table: Table) -> list[Column]:
    """A column of each metric that has a label, that the trials have, and that the table has no column of."""
    shown = {column.name for column in table.columns}
    columns = []
    for name in table_metrics():
        # Whether trials overfit is known where they have losses, also if none does.
        known_by = "test_loss" if name == "overfit_epoch" else name
        if table.has(known_by) and name not in shown and _is_comparable(name, table):
            columns.append(_column_of(name, table))
    return headed(table, columns)


def measure_columns(table: Table, names: Sequence[str], *, intervals: bool = True) -> list[Column]:
    """Columns of these measures, and `speed_up`, as far as any trial has them, and how runs ended.

    Args:
        table: a sweep's table.
        names: the measures.
        intervals: whether those that vary from repeat to repeat have intervals.
    """
    columns = []
    for name in names:
        if name == "speed_up":
            columns.append(SPEED_UP)
        elif table.has(name):
            interval = intervals and not is_exact(name)
            columns.append(metric_column(name, interval=interval, answers=intervals and name == names[0]))
    return headed(table, [*columns, *ENDING])


def headed(table: Table, columns: list[Column]) -> list[Column]:
    """Heads that speak of intervals only where there are some."""
    if any(len(row.counted) >= MIN_REPEATS for row in table.rows):
        return columns
    return [replace(column, head=column.title) for column in columns]


def default_columns(table: Table, *, losses: bool = True) -> list[Column]:
    """The columns of training: factors, speed, other metrics, how runs ended.

    Args:
        table: a sweep's table.
        losses: whether losses have columns, with accuracies.
    """
    first = _first_metric(table)
    families: dict[str, list[Column]] = defaultdict(list)
    for name in dict.fromkeys([*table_metrics(), *table.metric_names]):
        family = metric_of(name).family
        if name == first:
            families["first"].append(_column_of(name, table))
        elif _is_shown(name, table):
            families[family if family in _FAMILIES else "other"].append(_column_of(name, table))
    if not losses:
        families.pop("loss", None)
    bounds = bounds_of(table.rows, table.varied, table.fixed_batch_field)
    return [
        *(factor(name) for name in table.varied),
        *families["first"],
        *families["speed"],
        SPEED_UP,
        _EFFICIENCY,
        _TARGET_STEPS,
        _TARGET,
        *families["other"],
        Column("bound by", "bound_by", lambda row: bounds.get(row.trial_id)),
        *families["loss"],
        *families["custom"],
        *families["end"],
        *ENDING,
        _OVERSUBSCRIBED,
        _INDEPENDENT,
    ]


_FAMILIES = ("speed", "loss", "custom", "end")
"""Families of metrics whose columns have a place of their own."""


def _column_of(name: str, table: Table) -> Column:
    """The column of a metric in the table of a sweep."""
    metric, answers = metric_of(name), name == _first_metric(table)
    if name == "overfit_epoch":
        return Column(metric.label, name, lambda row: row.overfit_epoch)
    if name == COUNTED:
        return Column(metric.label, name, lambda row: row.estimates.get(COUNTED), _counted_text)
    return metric_column(name, interval=metric.interval or answers, answers=answers)


def _first_metric(table: Table) -> str:
    """The metric whose column follows the factors: what was searched for; else the speed, or the accuracy."""
    if table.best_by is not None:
        return table.best_by[0]
    if rate := common_rate(row for row in table.rows if row.counted):
        return rate
    times = durations_of([row for row in table.rows if row.timed])
    if times:
        return times[0]
    return "total_s" if table.is_timed else "test_accuracy"


def _is_shown(name: str, table: Table) -> bool:
    """Whether a table has a column of the metric by default."""
    metric = metric_of(name)
    if not _is_comparable(name, table):
        return False
    if name == "overfit_epoch":
        # By all epochs of its runs, which need not have the metric.
        return "regulariser" in table.asked
    if metric.shown == "always":
        return True
    if not table.has(name):
        return False
    if table.asked & {*metric.asked_by}:
        return True
    if metric.shown == "unless_one":
        return any({*row.by_block(name).values()} - {1} for row in table.rows)
    return metric.shown == "if_reported" and not any(table.has(other) for other in metric.unless)


def _is_comparable(name: str, table: Table) -> bool:
    """Whether values of the metric mean the same in each trial."""
    if metric_of(name).is_time and not table.is_timed:
        return False
    timed = [record for row in table.rows for record in row.timed]
    return name not in ("total_s", "run_cost") or not were_ended_apart(timed)


def factor(name: str) -> Column:
    """The column of a factor."""
    return Column(name, name, lambda row: row.factors.get(name), prefix=OF_A_FIELD)


def metric_column(
    name: str, *, interval: bool = False, answers: bool = False, of: Callable[[Trial], str] | None = None
) -> Column:
    """A metric, registered or custom.

    Args:
        name: the metric.
        interval: whether its interval is shown.
        answers: whether a trial of which no run is ok has its outcome here.
        of: the metric that has the value of a row, where it is not the same one in all rows.
    """
    metric = metric_of(name)
    name_of = of or (lambda row: name)

    def value(row: Trial) -> Estimate | None:
        return row.estimates.get(name_of(row))

    def text(row: Trial) -> str:
        if answers and not row.counted:
            return row.outcome
        text = row.text(name_of(row), interval=interval)
        if text and row.is_stopped and metric.scope == "epoch":
            last = max(record.metrics["stopped_epoch"] for record in row.counted)
            text += f" (epoch {last})"
        return text + _of_how_many(value(row), row)

    head = heading_of(name)
    if interval:
        head += INTERVAL
    prefix = OF_A_METRIC if metric.family == "custom" else OF_A_RECORD
    return Column(head, name, value, text, ("low", "high"), prefix)


def heading_of(name: str) -> str:
    """The heading of a metric: of a loss its name, of any other registered metric its label."""
    if metric_of(name).family == "loss":
        return name
    return label_of(name)


def _of_how_many(value: Estimate | None, row: Trial) -> str:
    """Of how many runs a value is, where not all have one."""
    if value is None or value.n == len(row.counted):
        return ""
    return f" ({value.n} of {len(row.counted)})"


def percent_of(share: float) -> str:
    """A share in percent, never more than it is."""
    return f"{math.floor(100 * share + _ROUNDING)}%"


def _counted_text(row: Trial) -> str:
    """How many of its steps count, and which share of its time: `45/50, 93%`.

    The smallest share of its runs, with the steps of the run that has it; where several have it, of the median one.
    """
    shares = row.by_block(COUNTED)
    if not shares:
        return ""
    smallest = percent_of(min(shares.values()))
    made, counted = row.by_block("steps_made"), row.by_block("counted_steps")
    steps = []
    for block, share in shares.items():
        if percent_of(share) == smallest:
            steps.append((made.get(block, 0), counted.get(block, 0)))
    steps_made, steps_counted = median_low(steps)
    return f"{steps_counted:.0f}/{steps_made:.0f}, {smallest}"


def _speed_up_text(row: Trial) -> str:
    return ratio_text(row.speed_up) + _of_how_many(row.speed_up, row)


def _efficiency(row: Trial) -> Interval | None:
    if row.speed_up is None:
        return None
    return Interval(row.speed_up.centre / row.world_size, None, None)


def _target_column(head: str, name: str, reached_by: Callable[[Trial], TimeToTarget | None]) -> Column:
    """A column of what it takes to reach the target accuracy."""
    form = SECONDS if name == "target_s" else INTEGER

    def text(row: Trial) -> str:
        found = reached_by(row)
        return "" if found is None else found.describe(form)

    return Column(head + INTERVAL, name, reached_by, text, ("low", "high"))


def _flag(head: str, is_so: Callable[[Trial], bool]) -> Column:
    """A column that says `yes` where something is so."""
    return Column(head, head.replace(" ", "_"), is_so, lambda row: "yes" if is_so(row) else "")


SPEED_UP = Column("speed-up" + INTERVAL, "speed_up", lambda row: row.speed_up, _speed_up_text, ("low", "high"))
_EFFICIENCY = Column("efficiency", "efficiency", _efficiency, lambda row: ratio_text(_efficiency(row)))
_TARGET_STEPS = _target_column("steps to target", "target_steps", lambda row: steps_to_target(row.records))
_TARGET = _target_column("s to target", "target_s", lambda row: time_to_target(row.records))
_OVERSUBSCRIBED = _flag("oversubscribed", lambda row: any(record.oversubscribed for record in row.records))
_INDEPENDENT = _flag("independent ranks", lambda row: bool(row.independent_ranks))
_HELD = Column("clocks held by", "clocks_held_by", lambda row: ", ".join(held_clocks(row)) or None)
ENDING = (
    _HELD,
    Column("n", "n", lambda row: len(row.counted)),
    Column("outcome", "outcome", lambda row: row.outcome),
)
"""What held the clocks of GPUs down, how many runs count, and how all of them ended."""
