"""Trials as the series of a chart: lines of trials, labels of trials, means with intervals, marks of OOM runs.

One module because every figure takes its lines, labels and points from the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Axis, Series
from dmls_ray.analysis.metrics import resolution_of
from dmls_ray.analysis.stats.intervals import Quantity, estimate
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.groups import BATCHES, all_groups_along_axis, count_values
from dmls_ray.analysis.trials.labels import name_of_change
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.config.fields import FieldSpec, field_specs
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.registry import workload_of

MAX_SERIES = 8
"""Series of one panel that are distinguishable by colour and mark."""
SINGLE_LINE = "measured"
"""Name of the only line of a figure."""

_ALWAYS_NAMED = {"world_size", *BATCHES}

Item = TypeVar("Item")


class Point(NamedTuple):
    """A point of a series."""

    x: float | str
    y: float | None
    low: float | None = None
    high: float | None = None
    runs: tuple[str, ...] = ()
    text: str = ""


def series_of(name: str, points: Sequence[Point], **options: Any) -> list[Series]:
    """A series of points, with the other fields of `Series`; empty without points."""
    if not points:
        return []
    x, y, low, high, runs, texts = map(list, zip(*points, strict=True))
    return [Series(name=name, x=x, y=y, low=low, high=high, runs=runs, texts=texts, **options)]


def dashed_line(name: str, x: Sequence[float | str], y: Sequence[float | None], same_as: str = "") -> Series:
    """What was not measured: an ideal, a limit, a fit."""
    return Series(name=name, kind="line", x=x, y=y, dashed=True, same_as=same_as)


def run_ids(records: Iterable[RunRecord]) -> tuple[str, ...]:
    """The run_id of each record."""
    return tuple(record.run_id for record in records)


@dataclass(frozen=True)
class Line:
    """Trials that differ in the factor of the x axis only, in the order of that factor."""

    name: str
    axis: str
    """Name of the factor."""
    rows: list[Trial]

    @property
    def title(self) -> str:
        """The name as the title of a panel; empty for the only line."""
        return "" if self.name == SINGLE_LINE else self.name


class BarGroup(NamedTuple):
    """The trials of a panel of bars."""

    title: str
    x: Axis
    rows: list[Trial]


def lines_along(table: Table, rows: Sequence[Trial], axis: str) -> list[Line]:
    """The lines of a figure over a numeric factor, named by the fields in which they differ.

    Returns:
        An empty list if no two trials can be joined.
    """
    lines = named_lines(table, [row for row in rows if is_number(row.factors.get(axis))], axis, table.changed)
    if max((len(line.rows) for line in lines), default=0) < 2:
        return []
    return lines


def named_lines(table: Table, rows: Sequence[Trial], axis: str, changed: Collection[str] = ()) -> list[Line]:
    """The trials that differ in the axis alone, numbers in order, named by the other fields in which they differ."""
    groups = all_groups_along_axis(rows, axis, table.fixed_batch_field)
    within = {axis}
    for group in groups:
        within.update(differing_fields(table, group))
    names = differing_fields(table, [group[0] for group in groups])
    others = [name for name in names if name not in within]
    lines = []
    for group in groups:
        ordered = list(group)
        if has_numbers(rows, axis):
            ordered.sort(key=lambda row: row.factors[axis])
        lines.append(Line(trial_label(ordered[0], others, changed) or SINGLE_LINE, axis, ordered))
    return lines


def rows_of(lines: Iterable[Line]) -> list[Trial]:
    """The trials of lines."""
    return [row for line in lines for row in line.rows]


def trained_together(table: Table) -> list[Trial]:
    """The trials whose ranks trained one model together."""
    return [row for row in table.rows if not row.independent_ranks]


def has_numbers(rows: Iterable[Trial], name: str) -> bool:
    """Whether all values of a factor have a position on a numeric axis."""
    return all(is_number(row.factors.get(name)) for row in rows)


def batch_axis(table: Table) -> str:
    """The batch field of an x axis: the fixed one, which means the same at every world size."""
    fixed = table.fixed_batch_field
    return "global_batch" if fixed == "global_batch" and "global_batch" in table.varied else "batch_per_rank"


def default_axis(table: Table, rows: Sequence[Trial]) -> str:
    """The numeric x axis of a figure that has no fixed one; empty if no factor qualifies.

    The first of world_size, the batch and the varied fields along which two trials can be joined; none that was changed
    in one trial alone.
    """
    for name in ("world_size", batch_axis(table), *table.varied):
        if name not in table.changed and has_numbers(rows, name) and lines_along(table, rows, name):
            return name
    return ""


def differing_fields(table: Table, rows: Sequence[Trial]) -> list[str]:
    """The fields in which trials differ; of the two batch fields only the fixed one, since the other follows."""
    derived = BATCHES - {table.fixed_batch_field}
    return [name for name in table.varied if name not in derived and count_values(rows, name) > 1]


def trial_label(row: Trial, names: Sequence[str], changed: Collection[str] = ()) -> str:
    """Label of a trial by the fields in which trials differ: `world_size 2, optimizer adam`.

    Of more than two fields those at their default are left out, except ranks and batch, unless all are.

    Args:
        row: the trial.
        names: the fields.
        changed: fields that were changed one at a time; they are one part of the label: `dropout=0.3`, `baseline`.
    """
    others = [name for name in names if name not in changed]
    shown = others
    if len(others) > 2:
        shown = [name for name in others if name in _ALWAYS_NAMED or not _is_default(row, name)] or others
    change = [name_of_change(row, changed)] if len(others) < len(names) else []
    return ", ".join([*change, *(f"{name} {format_factor(row.factors[name])}" for name in shown)])


def trial_labels(table: Table, rows: Sequence[Trial]) -> list[str]:
    """The label of each trial; a single trial is labelled by the fields that vary in the table."""
    names = differing_fields(table, rows if len(rows) > 1 else table.rows)
    return [trial_label(row, names, table.changed) for row in rows]


def factor_axis(lines: Sequence[Line]) -> Axis:
    """The x axis of lines along one factor; logarithmic if the values of the factor span a factor of four or more."""
    name, rows = lines[0].axis, rows_of(lines)
    values = sorted({row.factors[name] for row in rows})
    return Axis(_with_unit(name, rows), log=bool(values) and values[0] > 0 and values[-1] >= 4 * values[0])


def category_axis(name: str, rows: Iterable[Trial]) -> Axis:
    """An axis with a category for each value of a factor."""
    return Axis(name, categories=list(dict.fromkeys(format_factor(row.factors[name]) for row in rows)))


def trial_axis(table: Table, rows: Sequence[Trial]) -> tuple[Axis, list[str]]:
    """An axis with one category per trial, and the category of each trial.

    The categories are the values of the field in which the trials differ, or the labels of the trials if they differ
    in several fields.
    """
    names = differing_fields(table, rows)
    if len(names) == 1:
        values = [format_factor(row.factors[names[0]]) for row in rows]
        return Axis(_with_unit(names[0], rows), categories=values), values
    labels = trial_labels(table, rows)
    return Axis("trial", categories=labels), labels


def bar_groups(table: Table, rows: Sequence[Trial], most: int) -> tuple[list[BarGroup], tuple[str, ...]]:
    """The trials of each panel of bars, and a note on those left out.

    Where trials differ in the batch, there is a panel for each line of them: its labels are short.
    """
    axis = batch_axis(table)
    lines, notes = limit_items(lines_along(table, rows, axis), "lines", most)
    groups = []
    for line in lines:
        groups.append(BarGroup(line.title, category_axis(axis, line.rows), line.rows))
    if not lines and rows:
        shown, notes = limit_items(rows, "trials", MAX_CATEGORIES)
        groups.append(BarGroup("", trial_axis(table, shown)[0], shown))
    return groups, notes


def format_factor(value: Any) -> str:
    """The value of a factor in a legend."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def is_number(value: Any) -> bool:
    """Whether the value of a factor has a position on a numeric axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_unit(name: str, rows: Iterable[Trial]) -> str:
    spec = next((spec for row in rows if (spec := _spec(row, name)) is not None), None)
    return f"{name} ({spec.setting.unit})" if spec is not None and spec.setting.unit else name


def _is_default(row: Trial, name: str) -> bool:
    """Whether a field is at its default; the backend of one rank is None, which is no choice either."""
    value, spec = row.factors[name], _spec(row, name)
    return value is None or (spec is not None and value == spec.default)


def _spec(row: Trial, name: str) -> FieldSpec | None:
    """The field of this name, without importing a user-defined training function."""
    return field_specs(workload_of(row.records[0].config).config).get(name)


def measured_series(
    name: str,
    points: Iterable[tuple[float | str, Trial, Mapping[int, float]]],
    *,
    quantity: Quantity = "amount",
    metric: str = "",
    connected: bool = False,
    same_as: str = "",
) -> list[Series]:
    """One series of means with their intervals; empty if no point has a value.

    Args:
        name: name of the series.
        points: for each point its x, its trial, and its values by block.
        quantity: kind of the values.
        metric: the metric that they are of, where it is a share: its interval is that of the table.
        connected: whether to join the points by a line.
        same_as: the series whose colour and mark to use.
    """
    measured = []
    for x, row, values in points:
        if not values:
            continue
        resolution = resolution_of(metric, row.counted)
        value = estimate(list(values.values()), quantity, resolution=resolution, is_once=row.is_once(metric))
        runs = run_ids(record for record in row.counted if record.repeat in values)
        measured.append(Point(x, value.centre, value.low, value.high, runs, f"n={value.n}"))
    return series_of(name, measured, connected=connected, same_as=same_as)


def line_series(
    line: Line, values: Callable[[Trial], Mapping[int, float]], *, quantity: Quantity = "amount"
) -> list[Series]:
    """`measured_series` of a line, with joined points; `values` returns those of a trial by block."""
    points = [(row.factors[line.axis], row, values(row)) for row in line.rows]
    return measured_series(line.name, points, quantity=quantity, connected=True)


def oom_crosses(line: Line, *, limit: float | None = None) -> list[Series]:
    """One series with a cross for each trial of a line of which a run ran out of memory; empty if none did.

    Args:
        line: the trials.
        limit: height of the crosses; None: the edge of the panel.
    """
    points = []
    for row in line.rows:
        if runs := _oom_runs(row):
            points.append((row.factors[line.axis], row, runs))
    return _crosses("oom", line.name, points, limit)


def lost_crosses(name: str, points: Iterable[tuple[float | str, Trial]]) -> list[Series]:
    """A series of crosses for each way in which trials of a line ended without a value, and for runs out of memory.

    Args:
        name: the line.
        points: for each trial its x.
    """
    by_ending: dict[str, list[tuple[float | str, Trial, list[RunRecord]]]] = {}
    for x, row in points:
        if runs := _oom_runs(row):
            by_ending.setdefault("oom", []).append((x, row, runs))
        elif not row.counted:
            by_ending.setdefault(row.records[0].ending, []).append((x, row, row.records))
    crosses: list[Series] = []
    for ending, found in by_ending.items():
        crosses += _crosses(ending, name, found)
    return crosses


def _crosses(
    name: str, same_as: str, points: Sequence[tuple[float | str, Trial, list[RunRecord]]], limit: float | None = None
) -> list[Series]:
    crosses = []
    for x, row, runs in points:
        text = f"{len(runs)} of {len(row.records)} runs: {runs[0].reason}"
        crosses.append(Point(x, limit, runs=run_ids(runs), text=text))
    return series_of(name, crosses, kind="cross", same_as=same_as)


def _oom_runs(row: Trial) -> list[RunRecord]:
    return [record for record in row.records if record.outcome is Outcome.OOM]


def metric_lines(table: Table, metrics: Collection[str], axis: str) -> tuple[list[Line], tuple[str, ...]]:
    """At most `MAX_SERIES` lines along an axis, and a note on those left out.

    The lines have the trials with a value of any of these metrics, or with a run that ran out of memory.
    """
    rows = [row for row in table.rows if _oom_runs(row) or any(row.by_block(metric) for metric in metrics)]
    return limit_items(lines_along(table, rows, axis), "lines")


def limit_items(items: Sequence[Item], noun: str, most: int = MAX_SERIES) -> tuple[list[Item], tuple[str, ...]]:
    """At most so many items, spread evenly from the first to the last, and a note on those left out.

    Args:
        items: in the order of the table.
        noun: what the note calls them.
        most: how many to keep.
    """
    kept = _spread(items, most)
    return kept, _note_on_rest(len(kept), len(items), noun, "spread evenly over the table")


def limit_rows(
    table: Table, rows: Sequence[Trial], shows: Callable[[Trial], bool]
) -> tuple[list[Trial], tuple[str, ...]]:
    """At most `MAX_SERIES` trials, in a search the best ones, and a note on those left out.

    Args:
        table: table of the sweep.
        rows: candidates by their metrics.
        shows: whether a trial has something to draw. It may read epochs and ranks, so it is called for the trials
            that would be drawn only.
    """
    is_search = all(record.mode == "search" for row in table.rows for record in row.records)
    kept = [row for row in (rows[:MAX_SERIES] if is_search else _spread(rows, MAX_SERIES)) if shows(row)]
    if len(kept) < len(rows) <= MAX_SERIES:
        others = "the other has" if len(rows) - len(kept) == 1 else "the others have"
        return kept, (f"{len(kept)} of {len(rows)} trials are drawn: {others} nothing to show here.",)
    selection = "the best ones" if is_search else "spread evenly over the table"
    return kept, _note_on_rest(len(kept), len(rows), "trials", selection)


def _spread(items: Sequence[Item], most: int) -> list[Item]:
    if len(items) <= most:
        return list(items)
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]


def _note_on_rest(kept: int, count: int, noun: str, selection: str) -> tuple[str, ...]:
    if kept == count:
        return ()
    return (f"{kept} of {count} {noun} are drawn, {selection}; the table has the other {count - kept}.",)
