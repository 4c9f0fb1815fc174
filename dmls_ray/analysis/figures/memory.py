"""Peak memory of a rank against the batch, with what the device has, and where it did not suffice."""

from __future__ import annotations

from collections.abc import Iterable

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.lines import batch_axis, factor_axis, lines_along
from dmls_ray.analysis.figures.series import limit_items, measured_series, oom_crosses, rows_with_any
from dmls_ray.analysis.table.row import Row, Table
from dmls_ray.records.outcome import Outcome

_WIDE = 4
"""A limit this many times as high as the peaks would press them flat on a linear axis."""


def chart(table: Table) -> Chart | None:
    """The figure; None where no two trials differ in the batch alone, or none of them knows its peak.

    The peak is that of the rank that needed most: the resident set of its process on a CPU, what was allocated on a
    GPU.
    """
    axis = batch_axis(table)
    lines, notes = limit_items(lines_along(table, rows_with_any(table.rows, ["peak_mem_mib"]), axis), "lines")
    series: list[Series] = []
    limits: dict[str, float] = {}
    for line in lines:
        known = dict(filter(None, map(limit_of, line.rows)))
        at = [(row.factors[axis], row, row.by_block("peak_mem_mib")) for row in line.rows]
        points = measured_series(line.name, at, connected=True)
        if points is not None:
            height = next(iter(known.values())) if len(known) == 1 else None
            series += [points, *oom_crosses(line, lambda row: row.factors[axis], limit=height)]
            limits |= known
    if not series:
        return None
    x = factor_axis(axis, [row for line in lines for row in line.rows])
    ends = [edge(row.factors[axis] for line in lines for row in line.rows) for edge in (min, max)]
    peaks = [value for item in series if item.kind == "points" for value in item.y if value is not None]
    far = bool(limits) and max(limits.values()) > _WIDE * max(peaks)
    lines_of_limits = [
        Series(name=name, kind="line", x=ends, y=[value, value], dashed=True) for name, value in limits.items()
    ]
    return Chart(
        name="memory",
        title="Peak memory against batch",
        panels=[
            Panel(
                x=x,
                y=Axis(f"peak memory of a rank: {_kind(table.rows)} (MiB)", log=far, from_zero=not far),
                series=[*series, *lines_of_limits],
            )
        ],
        notes=notes,
    )


def limit_of(row: Row) -> tuple[str, float] | None:
    """What a rank of a trial has, and its name: the GPU's memory, or on a CPU the host's, shared by the ranks on it.

    None where it is not known: an older record, ranks on machines that the record does not describe, or ranks in
    unequal numbers on them.
    """
    record = next((item for item in row.records if item.outcome in (Outcome.OK, Outcome.OOM) and item.device), None)
    if record is None:
        return None
    if record.device.startswith("cuda"):
        sizes = record.machine.get("gpu_memory_mib") or []
        return ("limit: memory of the GPU", float(min(sizes))) if sizes else None
    host, memory = record.machine.get("host"), record.machine.get("memory_mib")
    if memory is None or any(rank.machine != host for rank in record.ranks):
        return None
    ranks = row.world_size
    return (f"limit: host memory / {ranks} ranks" if ranks > 1 else "limit: host memory", memory / ranks)


def _kind(rows: Iterable[Row]) -> str:
    devices = {record.device.partition(" ")[0] for row in rows for record in row.records if record.device}
    words = {"cpu": "resident set", "cuda": "allocated"}
    return ", ".join(sorted(words.get(device, device) for device in devices)) or "resident set or allocated"
