"""Trials as the series of a chart: which are drawn, labels, lines, means with intervals, crosses for lost runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from dmls_ray.analysis.figures.chart import Axis, Panel, Point, Series
from dmls_ray.analysis.metrics import MEMORY_METRICS, label_of, quantity_of, resolution_of, table_metrics
from dmls_ray.analysis.stats.intervals import Quantity, estimate
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.axis import BATCHES, all_groups_along_axis, count_values
from dmls_ray.analysis.trials.common_metrics import speed_metric
from dmls_ray.analysis.trials.trial import RUNS_PER_S, Trial, name_of_change
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import is_number

MAX_SERIES = 8
"""Series of one panel that are distinguishable by colour and mark."""
SINGLE_LINE = "measured"
"""Name of the only line of a figure."""

_MAX_TICKS = 9
"""Values of a field that have a tick each."""
_MOST_MEASURES = 3
_UNITS = ("s", "ms", "MiB", "bytes", "Mbit/s")
"""Last words of the labels of metrics."""

Place = float | str
"""The x of a point."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Plotted:
    """What the y axis of a panel shows."""

    y: Axis
    values: Callable[[Trial], Mapping[int, float]]
    """The values of a trial by block; empty if it has none."""
    metric: str = ""
    """The metric that they are of; empty if they are of none, as the speed."""
    quantity: Quantity | None = None
    """Kind of the values; None: that of the metric."""

    def series(self, name: str, points: Iterable[tuple[Place, Trial]], **options: Any) -> list[Series]:
        """`measured_series` of trials, each with its x."""
        measured = [(x, row, self.values(row)) for x, row in points]
        return measured_series(name, measured, metric=self.metric, quantity=self.quantity, **options)


@dataclass
class Line:
    """Trials that differ in the field of the x axis only, each with its x."""

    name: str
    points: Sequence[tuple[Place, Trial]]

    def __post_init__(self) -> None:
        self.rows = [row for _, row in self.points]
        self.title = "" if self.name == SINGLE_LINE else self.name
        """The name as the title of a panel; empty for the only line."""


def measured_series(
    name: str,
    points: Iterable[tuple[Place, Trial, Mapping[int, float]]],
    *,
    metric: str = "",
    quantity: Quantity | None = None,
    describe: Callable[[Trial], str] | None = None,
    **options: Any,
) -> list[Series]:
    """One series of means with their intervals; empty if no point has a value.

    Args:
        name: name of the series.
        points: for each point its x, its trial, and its values by block.
        metric: the metric that the values are of.
        quantity: kind of the values; None: that of the metric.
        describe: what is said of a trial besides its numbers.
        options: other fields of `Series`.
    """
    known = [(x, row, by_block) for x, row, by_block in points if by_block]
    if quantity is None:
        quantity = quantity_of(metric, [value for _, _, by_block in known for value in by_block.values()])
    measured = []
    for x, row, by_block in known:
        resolution = resolution_of(metric, row.counted)
        value = estimate(list(by_block.values()), quantity, resolution=resolution, is_once=row.is_once(metric))
        text = f"n={value.n}"
        if describe is not None:
            text = f"{describe(row)}, {text}"
        runs = run_ids(record for record in row.counted if record.repeat in by_block)
        measured.append(Point(x, value.centre, value.low, value.high, runs, text))
    return [Series(name, measured, **options)] if measured else []


def lost_crosses(name: str, points: Iterable[tuple[Place, Trial]]) -> list[Series]:
    """A series of crosses for each way in which trials of a line ended without a value, and for runs out of memory.

    Args:
        name: the line.
        points: for each trial its x.
    """
    crosses: dict[str, list[Point]] = {}
    for x, row in points:
        lost = oom_runs(row)
        if not (lost or row.counted):
            lost = row.records
        if lost:
            text = f"{len(lost)} of {len(row.records)} runs: {lost[0].reason}"
            crosses.setdefault(lost[0].ending, []).append(Point(x, None, runs=run_ids(lost), text=text))
    return [Series(ending, lost, "cross", same_as=name) for ending, lost in crosses.items()]


def dashed_line(name: str, points: Iterable[tuple[Place, float]], same_as: str = "") -> Series:
    """What was not measured: an ideal, a limit, a fit."""
    return Series(name, [Point(x, y) for x, y in points], "line", dashed=True, same_as=same_as)


def line_panels(plotted: Iterable[Plotted], x: Axis, lines: Sequence[Line]) -> list[Panel]:
    """A panel for each quantity of which a trial has a value: the trials of lines, joined where x is a number.

    A trial without a value is a cross.
    """
    panels = []
    for item in plotted:
        measured: list[Series] = []
        lost: list[Series] = []
        for line in lines:
            measured += item.series(line.name, line.points, connected=not x.categories)
            lost += lost_crosses(line.name, line.points)
        if measured:
            panels.append(Panel(x=x, y=item.y, series=[*measured, *lost]))
    return panels


def plotted_metric(name: str, label: str = "", *, log: bool = False, from_zero: bool = False) -> Plotted:
    """A metric on a y axis."""
    y = Axis(label or _label(name), log=log, from_zero=from_zero)
    return Plotted(y, partial(Trial.by_block, metric=name), name)


def plotted_rates(rows: Sequence[Trial]) -> Plotted:
    """The throughput that these trials have in common, in its unit; none of ranks that trained apart."""
    metric = speed_metric(*(row for row in rows if row.rates()))
    unit = "runs/s" if metric == RUNS_PER_S else label_of(metric)

    def values(row: Trial) -> Mapping[int, float]:
        return {} if row.independent_ranks else row.by_block(metric)

    return Plotted(Axis(f"throughput ({unit})", from_zero=True), values, quantity="rate")


def plotted_measures(table: Table, rows: Sequence[Trial]) -> list[Plotted]:
    """The measures by which the answer compares these trials, the most important first."""
    plotted = []
    measures = [item for item in table.questions.measures(rows) if item.is_judged]
    known = [item for item in measures if any(row.by_block(item.metric) for row in rows)]
    for measure in known[:_MOST_MEASURES]:
        if measure.kind == "speed":
            plotted.append(plotted_rates(rows))
        else:
            plotted.append(plotted_metric(measure.metric, from_zero=measure.is_ratio))
    return plotted


def plotted_of_question(table: Table, rows: Sequence[Trial], asked: set[str]) -> list[Plotted]:
    """The metrics that fields ask for, as far as these trials have them.

    Args:
        table: the sweep's table.
        rows: the trials.
        asked: fields and families of fields.
    """
    names = [name for name, metric in table_metrics().items() if asked & {*metric.asked_by} and table.has(name)]
    return [plotted_metric(name) for name in names if any(row.by_block(name) for row in rows)]


def _label(name: str) -> str:
    """The label of a metric's axis: a heading of a table with its unit in brackets, `start-up (s)` of `start-up s`."""
    metric = table_metrics().get(name)
    if name in MEMORY_METRICS:
        return f"{MEMORY_METRICS[name]} of a rank (MiB)"
    if name == "total_s":
        return "run time (s)"
    if metric is not None and metric.share_of:
        return f"{name.replace('_', ' ')} (fraction of samples)"
    words, _, unit = label_of(name).rpartition(" ")
    return f"{words} ({unit})" if words and unit in _UNITS else label_of(name)


def lines_along(table: Table, rows: Sequence[Trial], field: str) -> tuple[Axis, list[Line]]:
    """The x axis of a field, and the lines along it, named by the other fields in which they differ.

    There is no line if no two trials can be joined.
    """
    groups = all_groups_along_axis(rows, field, table.fixed_batch_field)
    if field not in table.varied or max(map(len, groups), default=0) < 2:
        return Axis(field), []
    x = field_axis(field, rows)
    within = {field}
    for group in groups:
        within.update(differing_fields(table, group))
    return x, lines_of_groups(table, groups, within, lambda row: place_of(row, field, x))


def lines_of_groups(
    table: Table, groups: Sequence[Sequence[Trial]], within: Collection[str], place: Callable[[Trial], Place]
) -> list[Line]:
    """A line for each group of trials, named by the fields in which the groups differ.

    Args:
        table: table of the sweep.
        groups: the trials.
        within: fields that differ within a group, so that they name none.
        place: the x of a trial; trials are in the order of their numbers.
    """
    names = [name for name in differing_fields(table, [group[0] for group in groups]) if name not in within]
    lines = []
    for group in groups:
        points = [(place(row), row) for row in group]
        if not any(isinstance(x, str) for x, _ in points):
            points.sort(key=lambda point: float(point[0]))
        lines.append(Line(trial_label(points[0][1], names, table.changed) or SINGLE_LINE, points))
    return lines


def metric_lines(table: Table, plotted: Plotted, field: str) -> tuple[Axis, list[Line], list[str]]:
    """At most `MAX_SERIES` lines along a field with their axis, and a note on those left out.

    The lines have the trials with a value, or with a run that ran out of memory.
    """
    rows = [row for row in table.rows if oom_runs(row) or plotted.values(row)]
    x, lines = lines_along(table, rows, field)
    return x, *limit_items(lines, "lines")


def field_axis(name: str, rows: Sequence[Trial]) -> Axis:
    """The x axis of a field: of numbers, logarithmic from a factor of four on, or a category for each value."""
    distinct = list(dict.fromkeys(row.factors[name] for row in rows))
    if not all(map(is_number, distinct)):
        return Axis(name, categories=list(dict.fromkeys(map(format_factor, distinct))))
    values = sorted(distinct)
    ticks = values if len(values) <= _MAX_TICKS else ()
    spec = rows[0].workload.specs().get(name)
    label = f"{name} ({spec.setting.unit})" if spec is not None and spec.setting.unit else name
    return Axis(label, log=values[0] > 0 and values[-1] >= 4 * values[0], ticks=ticks)


def place_of(row: Trial, field: str, x: Axis) -> Place:
    """The place of a trial on the axis of a field."""
    value: Place = row.factors[field]
    return format_factor(value) if x.categories else value


def batch_axis(table: Table) -> str:
    """The batch field of an x axis: the fixed one, which means the same at every world size."""
    fixed = table.fixed_batch_field
    return "global_batch" if fixed == "global_batch" and "global_batch" in table.varied else "batch_per_rank"


def trained_together(table: Table) -> list[Trial]:
    """The trials whose ranks trained one model together."""
    return [row for row in table.rows if not row.independent_ranks]


def run_ids(records: Iterable[RunRecord]) -> tuple[str, ...]:
    """The run_id of each record."""
    return tuple(record.run_id for record in records)


def oom_runs(row: Trial) -> list[RunRecord]:
    """The runs of a trial that ran out of memory."""
    return [record for record in row.records if record.outcome is Outcome.OOM]


def differing_fields(table: Table, rows: Sequence[Trial]) -> list[str]:
    """The fields in which trials differ; of the two batch fields only the fixed one, since the other follows."""
    derived = BATCHES - {table.fixed_batch_field}
    return [name for name in table.varied if name not in derived and count_values(rows, name) > 1]


def trial_label(row: Trial, names: Sequence[str], changed: Collection[str] = ()) -> str:
    """Label of a trial by the fields in which trials differ: `world_size 2, optimizer adam`.

    Args:
        row: the trial.
        names: the fields.
        changed: fields that were changed one at a time; they are one part of the label: `dropout=0.3`, `baseline`.
    """
    others = [name for name in names if name not in changed]
    parts = [f"{name} {format_factor(row.factors[name])}" for name in others]
    if len(others) < len(names):
        parts.insert(0, name_of_change(row, changed))
    return ", ".join(parts)


def trial_labels(table: Table, rows: Sequence[Trial]) -> list[str]:
    """The label of each trial; a single trial is labelled by the fields that vary in the table."""
    names = differing_fields(table, rows if len(rows) > 1 else table.rows)
    return [trial_label(row, names, table.changed) for row in rows]


def format_factor(value: Any) -> str:
    """The value of a field in a legend."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def range_of(counts: Collection[int]) -> str:
    """Counts in a sentence: `3`, or `3 to 5`."""
    return str(max(counts)) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def limit_items(items: Sequence[Item], noun: str, most: int = MAX_SERIES) -> tuple[list[Item], list[str]]:
    """At most so many items, spread evenly from the first to the last, and a note on those left out.

    Args:
        items: in the order of the table.
        noun: what the note calls them.
        most: how many to keep.
    """
    if len(items) <= most:
        return list(items), []
    kept = [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]
    return kept, [f"{most} of {len(items)} {noun} are drawn; the table has all of them."]
