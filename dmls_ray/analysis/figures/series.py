"""Trials as the series of a chart: which are drawn, labels, lines, means with intervals, crosses for lost runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from dmls_ray.analysis.figures.chart import Panel, PlotAxis, PlotSeries, Point
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
_WIDE = 20
"""Ratio of the highest to the lowest value above which an axis is logarithmic."""
_UNITS = ("s", "ms", "MiB", "bytes", "Mbit/s")
"""Last words of the labels of metrics."""

Place = float | str
"""The x of a point."""
PlaceOf = Callable[[Trial], Place]

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Plotted:
    """What the y axis of a panel shows."""

    y: PlotAxis
    values: Callable[[Trial], Mapping[int, float]]
    """The values of a trial by block; empty if it has none."""
    metric: str = ""
    """The metric that they are of; empty if they are of none, as the speed."""
    quantity: Quantity | None = None
    """Kind of the values; None: that of the metric."""

    def series(self, line: Line, **options: Any) -> list[PlotSeries]:
        """`measured_series` of a line."""
        points = [(line.place(row), row, self.values(row)) for row in line.rows]
        return measured_series(line.name, points, metric=self.metric, quantity=self.quantity, **options)


@dataclass(frozen=True)
class Line:
    """Trials under one name, as those that differ in the field of the x axis only."""

    title: str
    """What tells the line from others; empty for the only line."""
    rows: Sequence[Trial]
    place: PlaceOf

    @property
    def name(self) -> str:
        return self.title or SINGLE_LINE


def measured_series(
    name: str,
    points: Sequence[tuple[Place, Trial, Mapping[int, float]]],
    *,
    metric: str = "",
    quantity: Quantity | None = None,
    describe: Callable[[Trial], str] | None = None,
    **options: Any,
) -> list[PlotSeries]:
    """One series of means with their intervals; empty if no point has a value.

    Args:
        name: name of the series.
        points: for each point its x, its trial, and its values by block.
        metric: the metric that the values are of.
        quantity: kind of the values; None: that of the metric.
        describe: what is said of a trial besides its numbers.
        options: other fields of `PlotSeries`.
    """
    if quantity is None:
        values: list[float] = []
        for _, _, by_block in points:
            values += by_block.values()
        quantity = quantity_of(metric, values)
    measured = []
    for x, row, by_block in points:
        if not by_block:
            continue
        resolution = resolution_of(metric, row.counted)
        value = estimate(list(by_block.values()), quantity, resolution=resolution, is_once=row.is_once(metric))
        text = f"n={value.n}"
        if describe is not None:
            text = f"{describe(row)}, {text}"
        runs = run_ids(record for record in row.counted if record.repeat in by_block)
        measured.append(Point(x, value.centre, value.low, value.high, runs, text))
    return [PlotSeries(name, measured, **options)] if measured else []


def lost_crosses(line: Line) -> list[PlotSeries]:
    """A series of crosses for each way in which trials of a line ended without a value, and for runs out of memory."""
    crosses: dict[str, list[Point]] = {}
    for row in line.rows:
        lost = oom_runs(row)
        if not (lost or row.counted):
            lost = row.records
        if lost:
            text = f"{len(lost)} of {len(row.records)} runs: {lost[0].reason}"
            crosses.setdefault(lost[0].ending, []).append(Point(line.place(row), None, runs=run_ids(lost), text=text))
    return [PlotSeries(ending, lost, "cross", same_as=line.name) for ending, lost in crosses.items()]


def dashed_line(name: str, points: Iterable[tuple[Place, float]], same_as: str = "") -> PlotSeries:
    """What was not measured: an ideal, a limit, a fit."""
    return PlotSeries(name, [Point(x, y) for x, y in points], "line", dashed=True, same_as=same_as)


def line_panels(plotted: Iterable[Plotted], x: PlotAxis, lines: Sequence[Line]) -> list[Panel]:
    """A panel for each quantity of which a trial has a value: the trials of lines, joined where x is a number.

    A trial without a value is a cross.
    """
    panels = []
    for item in plotted:
        measured: list[PlotSeries] = []
        lost: list[PlotSeries] = []
        for line in lines:
            measured += item.series(line, connected=not x.categories)
            lost += lost_crosses(line)
        if measured:
            panels.append(Panel(x=x, y=item.y, series=[*measured, *lost]))
    return panels


def plotted_metric(name: str, label: str = "", *, log: bool = False, from_zero: bool = False) -> Plotted:
    """A metric on a y axis."""
    y = PlotAxis(label or _label(name), log=log, from_zero=from_zero)
    return Plotted(y, partial(Trial.by_block, metric=name), name)


def plotted_rates(rows: Sequence[Trial]) -> Plotted:
    """The throughput that these trials have in common, in its unit; none of ranks that trained apart."""
    metric = speed_metric(*(row for row in rows if row.rates()))
    unit = "runs/s" if metric == RUNS_PER_S else label_of(metric)

    def values(row: Trial) -> Mapping[int, float]:
        return {} if row.independent_ranks else row.by_block(metric)

    return Plotted(PlotAxis(f"throughput ({unit})", from_zero=True), values, quantity="rate")


def plotted_measures(table: Table, rows: Sequence[Trial]) -> list[Plotted]:
    """The measures by which the answer compares these trials, the most important first."""
    plotted = []
    for measure in table.questions.measures(rows):
        if not measure.is_judged or not _is_known(measure.metric, rows):
            continue
        if measure.kind == "speed":
            plotted.append(plotted_rates(rows))
        else:
            plotted.append(plotted_metric(measure.metric, from_zero=measure.is_ratio))
    return plotted[:_MOST_MEASURES]


def plotted_of_question(table: Table, rows: Sequence[Trial], asked: set[str]) -> list[Plotted]:
    """The metrics that fields or families of fields ask for, as far as these trials have them."""
    plotted = []
    for name, metric in table_metrics().items():
        if not asked.isdisjoint(metric.asked_by) and table.has(name) and _is_known(name, rows):
            plotted.append(plotted_metric(name))
    return plotted


def _is_known(metric: str, rows: Iterable[Trial]) -> bool:
    return any(row.by_block(metric) for row in rows)


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


def lines_along(table: Table, rows: Sequence[Trial], field: str) -> tuple[PlotAxis, list[Line]]:
    """The x axis of a field, and the lines along it, named by the other fields in which they differ.

    There is no line if no two trials can be joined.
    """
    groups = all_groups_along_axis(rows, field, table.fixed_batch_field)
    if field not in table.varied or all(len(group) < 2 for group in groups):
        return PlotAxis(field), []
    x = field_axis(field, rows)
    within = {field}.union(*(differing_fields(table, group) for group in groups))
    return x, lines_of_groups(table, groups, within, partial(value_on_axis, field=field, x=x))


def lines_of_groups(
    table: Table, groups: Sequence[Sequence[Trial]], within: Collection[str], place: PlaceOf
) -> list[Line]:
    """A line for each group of trials, named by the fields in which the groups differ.

    Args:
        table: table of the sweep.
        groups: the trials.
        within: fields that differ within a group, so that they name none.
        place: the x of a trial; trials are in the order of their numbers.
    """
    differing = differing_fields(table, [group[0] for group in groups])
    names = [name for name in differing if name not in within]
    lines = []
    for group in groups:
        rows = list(group)
        if not any(isinstance(place(row), str) for row in rows):
            rows.sort(key=place)
        lines.append(Line(trial_label(rows[0], names, table.changed), rows, place))
    return lines


def metric_lines(table: Table, plotted: Plotted, field: str) -> tuple[PlotAxis, list[Line], list[str]]:
    """At most `MAX_SERIES` lines along a field with their axis, and a note on those left out.

    The lines have the trials with a value, or with a run that ran out of memory.
    """
    rows = [row for row in table.rows if oom_runs(row) or plotted.values(row)]
    x, lines = lines_along(table, rows, field)
    return x, *limit_items(lines, "lines")


def field_axis(name: str, rows: Sequence[Trial]) -> PlotAxis:
    """The x axis of a field: of numbers, logarithmic from a factor of four on, or a category for each value."""
    texts = {row.factors[name]: format_factor(row.factors[name]) for row in rows}
    if not all(is_number(value) for value in texts):
        return PlotAxis(name, categories=list(dict.fromkeys(texts.values())))
    values = sorted(texts)
    label = name
    spec = rows[0].workload.specs().get(name)
    if spec is not None and spec.setting.unit:
        label = f"{name} ({spec.setting.unit})"
    ticks = values if len(values) <= _MAX_TICKS else ()
    return PlotAxis(label, log=values[0] > 0 and values[-1] >= 4 * values[0], ticks=ticks)


def value_on_axis(row: Trial, field: str, x: PlotAxis) -> Place:
    """The place of a trial on the axis of a field."""
    value: Place = row.factors[field]
    return format_factor(value) if x.categories else value


def is_wide(levels: Collection[float]) -> bool:
    """Whether levels above 0 lie so far apart that their axis is logarithmic."""
    return max(levels) > _WIDE * min(levels) > 0


def batch_axis(table: Table) -> str:
    """The batch field of an x axis: the fixed one, which means the same at every world size."""
    if "global_batch" in table.varied:
        return table.fixed_batch_field
    return "batch_per_rank"


def trained_together(rows: Iterable[Trial]) -> list[Trial]:
    """The trials whose ranks trained one model together."""
    return [row for row in rows if not row.independent_ranks]


def measured(rows: Iterable[Trial]) -> list[Trial]:
    """The trials with a run that counts."""
    return [row for row in rows if row.counted]


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
    parts = []
    if not set(names).isdisjoint(changed):
        parts = [name_of_change(row, changed)]
    parts += [f"{name} {format_factor(row.factors[name])}" for name in names if name not in changed]
    return ", ".join(parts)


def trial_labels(table: Table, rows: Sequence[Trial]) -> list[str]:
    """The label of each trial; a single trial is labelled by the fields that vary in the table."""
    names = differing_fields(table, rows if len(rows) > 1 else table.rows)
    return [trial_label(row, names, table.changed) for row in rows]


def format_factor(value: Any) -> str:
    """The value of a field in a legend."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def span_of(counts: Collection[int]) -> str:
    """Counts in a sentence: `3`, or `3 to 5`."""
    least, most = min(counts), max(counts)
    return f"{least} to {most}" if least < most else str(most)


def limit_items(items: Sequence[_Item], noun: str, most: int = MAX_SERIES) -> tuple[list[_Item], list[str]]:
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
