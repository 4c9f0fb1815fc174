"""Metrics of trials as the series of a chart: medians with intervals, marks of OOM runs, and limits on their number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from dmls_ray.analysis.figures.chart import Series
from dmls_ray.analysis.figures.lines import Line
from dmls_ray.analysis.stats.intervals import Quantity, estimate
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome

MAX_SERIES = 8
"""Series of one panel that are distinguishable by colour and mark."""

Item = TypeVar("Item")


def measured_series(
    name: str,
    points: Iterable[tuple[float | str, Row, Mapping[int, float]]],
    *,
    quantity: Quantity = "amount",
    connected: bool = False,
    same_as: str = "",
) -> list[Series]:
    """One series of medians with their intervals; empty if no point has a value.

    Args:
        name: name of the series.
        points: for each point its x, its trial, and its values by block.
        quantity: kind of the values.
        connected: whether to join the points by a line.
        same_as: the series whose colour and mark to use.
    """
    measured = [(x, row, values) for x, row, values in points if values]
    if not measured:
        return []
    estimates = [estimate(list(values.values()), quantity) for _, _, values in measured]
    return [
        Series(
            name=name,
            x=[x for x, _, _ in measured],
            y=[value.median for value in estimates],
            low=[value.low for value in estimates],
            high=[value.high for value in estimates],
            connected=connected,
            same_as=same_as,
            runs=[
                tuple(record.run_id for record in row.counted if record.repeat in values) for _, row, values in measured
            ],
            texts=[f"n={value.n}" for value in estimates],
        )
    ]


def line_series(
    line: Line, values: Callable[[Row], Mapping[int, float]], *, quantity: Quantity = "amount"
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
    rows = [row for row in line.rows if _oom_runs(row)]
    if not rows:
        return []
    return [
        Series(
            name="oom",
            kind="cross",
            x=[row.factors[line.axis] for row in rows],
            y=[limit] * len(rows),
            same_as=line.name,
            runs=[tuple(record.run_id for record in _oom_runs(row)) for row in rows],
            texts=[f"{len(_oom_runs(row))} of {len(row.records)} runs: {_oom_runs(row)[0].reason}" for row in rows],
        )
    ]


def _oom_runs(row: Row) -> list[RunRecord]:
    return [record for record in row.records if record.outcome is Outcome.OOM]


def rows_with_any(rows: Iterable[Row], metrics: Collection[str]) -> list[Row]:
    """The trials with a value of any of these metrics, or with a run that ran out of memory."""
    return [row for row in rows if _oom_runs(row) or any(row.by_block(metric) for metric in metrics)]


def limit_items(items: Sequence[Item], noun: str, most: int = MAX_SERIES) -> tuple[list[Item], tuple[str, ...]]:
    """At most so many items, spread evenly from the first to the last, and a note on those left out.

    Args:
        items: in the order of the table.
        noun: what the note calls them.
        most: how many to keep.
    """
    kept = _spread(items, most)
    return kept, _note_on_rest(len(kept), len(items), noun, "spread evenly over the table")


def limit_rows(table: Table, rows: Sequence[Row], shows: Callable[[Row], bool]) -> tuple[list[Row], tuple[str, ...]]:
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
