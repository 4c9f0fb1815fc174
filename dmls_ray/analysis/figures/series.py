"""Which trials belong on one line of a figure, what it is called, and how their measures become its series."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dmls_ray.analysis.figures.chart import Axis, Series
from dmls_ray.analysis.stats.intervals import Quantity, estimate
from dmls_ray.analysis.table.grouping import BATCHES, all_groups_along_axis, count_values
from dmls_ray.analysis.table.row import Row, Table
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.classification.config import DEFAULTS

MAX_SERIES = 8
"""Series that can be told apart in one panel, by colour and by mark."""

UNITS = {
    "world_size": "ranks", "batch_per_rank": "samples", "global_batch": "samples", "accum_steps": "passes",
    "bucket_cap_mib": "MiB", "image_size": "pixels a side", "threads_per_rank": "threads",
    "epochs": "passes over the data",
}  # fmt: skip
"""Unit of a field that is a number; what is not here has none."""

SINGLE_LINE = "measured"
"""The name of a line that has no other beside it."""

_ALWAYS = {"world_size", *BATCHES}
_NO_DEFAULT = object()

Item = TypeVar("Item")


@dataclass(frozen=True)
class Line:
    """Trials that differ in the figure's axis alone, in its order."""

    name: str
    rows: list[Row]


def lines_along(table: Table, rows: Sequence[Row], axis: str) -> list[Line]:
    """The lines of a figure over an axis of numbers, named by what differs from one to the next; empty where no two
    trials can be joined.
    """
    rows = [row for row in rows if is_number(row.factors.get(axis))]
    groups = [
        sorted(group, key=lambda row: row.factors[axis])
        for group in all_groups_along_axis(rows, axis, table.fixed_batch_field)
    ]
    if not any(len(group) > 1 for group in groups):
        return []
    within = {axis} | {name for group in groups for name in table.varied if count_values(group, name) > 1}
    firsts = [group[0] for group in groups]
    names = [name for name in differing_fields(table, firsts) if name not in within]
    return [Line(trial_label(group[0], names) or SINGLE_LINE, group) for group in groups]


def batch_axis(table: Table) -> str:
    """The batch that a figure has for its axis: the held one, which means the same at every world size."""
    return (
        "global_batch"
        if table.fixed_batch_field == "global_batch" and "global_batch" in table.varied
        else "batch_per_rank"
    )


def number_axis(table: Table, rows: Sequence[Row]) -> str:
    """The axis of numbers that a figure of no axis of its own goes along; empty where there is none.

    The ranks first, then the batch, then whatever varies: the first along which any two trials can be joined.
    """
    names = dict.fromkeys(("world_size", batch_axis(table), *table.varied))
    usable = (name for name in names if all(is_number(row.factors.get(name)) for row in rows))
    return next((name for name in usable if lines_along(table, rows, name)), "")


def differing_fields(table: Table, rows: Sequence[Row]) -> list[str]:
    """The fields in which trials differ; of the two batches the held one, since the other follows."""
    follows = BATCHES - {table.fixed_batch_field}
    return [name for name in table.varied if name not in follows and count_values(rows, name) > 1]


def trial_label(row: Row, names: Sequence[str]) -> str:
    """What tells a trial from others, by the fields in which they differ: `world_size 2, optimizer adam`.

    Of many fields only those that are not at their default are told, beside ranks and batch.
    """
    told = list(names)
    if len(names) > 2:
        # A backend of None is one rank's, which talks to nobody.
        told = [name for name in names if name in _ALWAYS
                or row.factors[name] not in (DEFAULTS.get(name, _NO_DEFAULT), None)]  # fmt: skip
        if not told:
            return "all at their defaults"
    return ", ".join(f"{name} {format_factor(row.factors[name])}" for name in told)


def trial_labels(table: Table, rows: Sequence[Row]) -> list[str]:
    """The label of each of these trials; one alone of a table of several is told by what sets it apart in the table."""
    names = differing_fields(table, rows if len(rows) > 1 else table.rows)
    return [trial_label(row, names) for row in rows]


def named_axis(table: Table, rows: Sequence[Row]) -> tuple[Axis, list[str]]:
    """An axis of the trials' names, and the name of each; where they differ in one field, of its values."""
    names = differing_fields(table, rows)
    if len(names) == 1:
        texts = [format_factor(row.factors[names[0]]) for row in rows]
        return Axis(with_unit(names[0]), categories=texts), texts
    texts = trial_labels(table, rows)
    return Axis("trial", categories=texts), texts


def format_factor(value: Any) -> str:
    """A factor's value, as a legend has it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def with_unit(name: str) -> str:
    """A factor's name with its unit, for an axis."""
    return f"{name} ({UNITS[name]})" if name in UNITS else name


def factor_axis(name: str, rows: Iterable[Row]) -> Axis:
    """The axis of a factor that is a number; logarithmic where it doubles twice or more."""
    values = sorted({row.factors[name] for row in rows})
    return Axis(with_unit(name), log=bool(values) and values[0] > 0 and values[-1] >= 4 * values[0])


def measured_series(
    name: str,
    points: Iterable[tuple[float | str, Row, Mapping[int, float]]],
    *,
    quantity: Quantity = "amount",
    connected: bool = False,
    same_as: str = "",
) -> Series | None:
    """Medians with their intervals; None where no point has a value.

    Args:
        name: the series' name.
        points: of each, where on the axis it is, whose it is, and its values by block.
        quantity: what the values are.
        connected: whether what lies between two points means something.
        same_as: the series whose colour and mark to take.
    """
    known = [(x, row, values) for x, row, values in points if values]
    if not known:
        return None
    estimates = [estimate(list(values.values()), quantity) for _, _, values in known]
    return Series(
        name=name,
        x=[x for x, _, _ in known],
        y=[value.median for value in estimates],
        low=[value.low for value in estimates],
        high=[value.high for value in estimates],
        connected=connected,
        same_as=same_as,
        runs=[tuple(record.run_id for record in row.counted if record.repeat in values) for _, row, values in known],
        texts=[f"n={value.n}" for value in estimates],
    )


def oom_crosses(line: Line, x: Callable[[Row], float | str], *, limit: float | None = None) -> list[Series]:
    """A cross for each trial of a line of which a run ended for want of memory.

    Args:
        line: the trials.
        x: where on the axis a trial is.
        limit: how high to mark it; without it, at the panel's edge.
    """
    out = [row for row in line.rows if _ooms(row)]
    if not out:
        return []
    return [
        Series(
            name="oom",
            kind="cross",
            x=[x(row) for row in out],
            y=[limit] * len(out),
            same_as=line.name,
            runs=[tuple(record.run_id for record in _ooms(row)) for row in out],
            texts=[f"{len(_ooms(row))} of {len(row.records)} runs: {_ooms(row)[0].reason}" for row in out],
        )
    ]


def _ooms(row: Row) -> list[RunRecord]:
    return [record for record in row.records if record.outcome is Outcome.OOM]


def rows_with_any(rows: Iterable[Row], measures: Collection[str]) -> list[Row]:
    """The trials that have a place in a figure of any of these measures: a value, or an oom in its stead."""
    return [row for row in rows if _ooms(row) or any(row.by_block(measure) for measure in measures)]


def limit_items(items: Sequence[Item], what: str, most: int = MAX_SERIES) -> tuple[list[Item], tuple[str, ...]]:
    """As many as can be told apart, spread evenly from the first to the last, and a note on the others.

    Args:
        items: what is to be shown, in the table's order.
        what: what they are, for the note.
        most: how many can be told apart.
    """
    kept = _spread(items, most)
    return kept, _left_out(len(kept), len(items), what, "spread evenly over the table")


def limit_rows(table: Table, rows: Sequence[Row], shows: Callable[[Row], bool]) -> tuple[list[Row], tuple[str, ...]]:
    """As many trials as can be told apart, of a search the best ones, and a note on the others.

    Args:
        table: the sweep's table.
        rows: those that may have something to show, as far as their measures tell.
        shows: whether one does, from its epochs and ranks: they are many, and read only of those that would be drawn.
    """
    searched = all(record.mode == "search" for row in table.rows for record in row.records)
    kept = [row for row in (rows[:MAX_SERIES] if searched else _spread(rows, MAX_SERIES)) if shows(row)]
    if len(kept) < len(rows) <= MAX_SERIES:
        others = "the other has" if len(rows) - len(kept) == 1 else "the others have"
        return kept, (f"{len(kept)} of {len(rows)} trials are drawn: {others} nothing to show here.",)
    which = "the best ones" if searched else "spread evenly over the table"
    return kept, _left_out(len(kept), len(rows), "trials", which)


def _spread(items: Sequence[Item], most: int) -> list[Item]:
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def _left_out(kept: int, count: int, what: str, which: str) -> tuple[str, ...]:
    if kept == count:
        return ()
    return (f"{kept} of {count} {what} are drawn, {which}; the table has the other {count - kept}.",)


def drop_none(series: Iterable[Series | None]) -> list[Series]:
    """Those that there are."""
    return [item for item in series if item is not None]


def is_number(value: Any) -> bool:
    """Whether a factor's value is a place on an axis of numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def rows_with_all(rows: Iterable[Row], measures: Collection[str]) -> list[Row]:
    """The trials of which all of these measures are known."""
    return [row for row in rows if all(row.by_block(measure) for measure in measures)]
