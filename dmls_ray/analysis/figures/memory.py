"""Memory of a rank: its kinds in each trial, and against the batch with the limit and the trials that exceeded it."""

from __future__ import annotations

from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import (
    Line,
    batch_axis,
    factor_axis,
    limit_items,
    line_series,
    metric_lines,
    oom_crosses,
    trial_axis,
)
from dmls_ray.analysis.memory import MEMORY, MEMORY_KINDS, kind_name, memory_limit, memory_metric
from dmls_ray.analysis.memory_line import memory_line
from dmls_ray.analysis.table.model import Table

_WIDE = 4
"""Ratio of limit to highest value above which the limit is not drawn, so that the values remain readable."""
_BEYOND = 2
"""How many times the largest batch a line goes to."""
_STRAIGHT = "line through the batches"


def chart(table: Table) -> Chart | None:
    """The figure; None if no run has the kinds of its memory, and no two trials differ in the batch alone."""
    notes: list[str] = []
    panels = [panel for make in (_by_kind, _against_batch) if (panel := make(table, notes)) is not None]
    return Chart(name="memory", title="Memory of a rank", panels=panels, notes=notes) if panels else None


def _by_kind(table: Table, notes: list[str]) -> Panel | None:
    """Bars of the kinds of memory on each other, which add up to the peak of the tensors."""
    measured = [row for row in table.rows if any(name in row.estimates for name in MEMORY_KINDS)]
    rows, note = limit_items(measured, "trials", MAX_CATEGORIES)
    if len(rows) < 2:
        return None
    notes += note
    x, labels = trial_axis(table, rows)
    series = []
    for name in MEMORY_KINDS:
        shown = [(label, row, row.estimates[name]) for label, row in zip(labels, rows, strict=True)
                 if name in row.estimates]  # fmt: skip
        if any(value.median > 0 for _, _, value in shown):
            series.append(
                Series(
                    name=kind_name(name),
                    kind="bar",
                    x=[label for label, _, _ in shown],
                    y=[value.median for _, _, value in shown],
                    runs=[tuple(record.run_id for record in row.counted) for _, row, _ in shown],
                    texts=[f"n={value.n}" for _, _, value in shown],
                )
            )
    label = f"{MEMORY['tensor_mem_mib']} at the peak of a training step (MiB)"
    return Panel(x=x, y=Axis(label, from_zero=True), series=series, stacked=True)


def _against_batch(table: Table, notes: list[str]) -> Panel | None:
    """The memory of a process or GPU if it is known, else that of tensors, with a line to a batch that was not run."""
    metric = next((name for name in ("device_mem_mib",) if table.has(name)), memory_metric(table.rows))
    lines, note = metric_lines(table, [metric], batch_axis(table)) if metric else ([], ())
    drawn = [(line, points) for line in lines if (points := line_series(line, lambda row: row.by_block(metric)))]
    if not drawn:
        return None
    notes += note
    highest = max(value for _, points in drawn for item in points for value in item.y if value is not None)
    series: list[Series] = []
    limits: dict[str, float] = {}
    for line, points in drawn:
        limits_of_line = dict(filter(None, map(memory_limit, line.rows)))
        near = {name: limit for name, limit in limits_of_line.items() if limit <= _WIDE * highest}
        height = next(iter(near.values())) if len(near) == len(limits_of_line) == 1 else None
        series += [*points, *_straight(line, metric, notes), *oom_crosses(line, limit=height)]
        limits |= limits_of_line

    batches = [float(row.factors[line.axis]) for line, _ in drawn for row in line.rows]
    ends = (min(batches), max(batches))
    for name, limit in limits.items():
        if limit <= _WIDE * highest:
            series.append(Series(name=name, kind="line", x=ends, y=[limit, limit], dashed=True))
        else:
            notes.append(f"{name[:1].upper()}{name[1:]}, {limit:,.0f} MiB, is far above.")
    return Panel(x=factor_axis(lines), y=Axis(f"{MEMORY[metric]} of a rank (MiB)", from_zero=True), series=series)


def _straight(line: Line, metric: str, notes: list[str]) -> list[Series]:
    """The line over the batches, with its estimate in the notes; empty if they are not on one."""
    fitted = memory_line(line.rows, line.axis, metric)
    if fitted is None:
        return []
    batch = _BEYOND * max(fitted.batches)
    notes.append(f"{line.name}: {fitted.describe(batch)}.")
    ends = (min(fitted.batches), batch)
    y = [fitted.at(end) for end in ends]
    return [Series(name=_STRAIGHT, kind="line", x=ends, y=y, dashed=True, same_as=line.name)]
