"""Peak memory of a rank against the batch, with the memory of the device and the trials that ran out of it."""

from __future__ import annotations

from collections.abc import Iterable

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import batch_axis, factor_axis, line_series, metric_lines, oom_crosses
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.outcome import Outcome

_WIDE = 4
"""Ratio of limit to highest peak above which the axis is logarithmic, so that the peaks remain readable."""


def chart(table: Table) -> Chart | None:
    """The figure; None if no two trials differ only in the batch, or no trial has a peak.

    The peak is that of the rank with the highest one: on a CPU the resident set of its process, on a GPU the allocated
    memory.
    """
    lines, notes = metric_lines(table, ["peak_mem_mib"], batch_axis(table))
    series: list[Series] = []
    limits: dict[str, float] = {}
    for line in lines:
        if points := line_series(line, lambda row: row.by_block("peak_mem_mib")):
            line_limits = dict(filter(None, map(limit_of, line.rows)))
            height = next(iter(line_limits.values())) if len(line_limits) == 1 else None
            series += [*points, *oom_crosses(line, limit=height)]
            limits |= line_limits
    if not series:
        return None

    batches = [row.factors[line.axis] for line in lines for row in line.rows]
    peaks = [value for item in series if item.kind == "points" for value in item.y if value is not None]
    far = bool(limits) and max(limits.values()) > _WIDE * max(peaks)
    ends = (min(batches), max(batches))
    lines_of_limits = [
        Series(name=name, kind="line", x=ends, y=[value, value], dashed=True) for name, value in limits.items()
    ]
    return Chart(
        name="memory",
        title="Peak memory against batch",
        panels=[
            Panel(
                x=factor_axis(lines),
                y=Axis(f"peak memory of a rank: {_kind(table.rows)} (MiB)", log=far, from_zero=not far),
                series=[*series, *lines_of_limits],
            )
        ],
        notes=notes,
    )


def limit_of(row: Row) -> tuple[str, float] | None:
    """Name and size of the memory limit of a rank: the memory of the GPU, or that of the host divided by its ranks.

    None if it is unknown: in an older record, or with ranks on a machine that the record does not describe.
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
