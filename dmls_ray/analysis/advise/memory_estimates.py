"""Sentences on the memory of a batch that was not run, and on the batch that fills a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from dmls_ray.analysis.figures.series import SINGLE_LINE, Line, batch_axis, lines_along
from dmls_ray.analysis.findings.memory import FARTHEST, MIN_BATCHES, MOST_MISSED, MemoryLine, memory_line
from dmls_ray.analysis.memory import MEMORY, memory_limit
from dmls_ray.analysis.table.model import Table

_MOST = 4
"""Lines of trials that have a sentence."""


def memory_estimates(table: Table, measure: str, batch: int | None = None) -> list[str]:
    """A sentence for each line of trials that differ in the batch alone, as far as their memory lies on a line.

    Args:
        table: the sweep's table.
        measure: the metric of memory that the trials are judged by; what machines need has sentences too.
        batch: the batch to estimate; without it, twice the largest that was run.
    """
    metrics = [name for name in dict.fromkeys((measure, "host_mem_mib", "device_mem_mib")) if table.has(name)]
    axis = batch_axis(table)
    lines = lines_along(table, table.rows, axis)[:_MOST]
    if not lines and batch is not None:
        return [f"no estimate for {axis} {batch}: no two trials differ in it alone."]
    return [
        sentence
        for line in lines
        for metric in metrics
        for sentence in _of_line(line, metric, batch, says_why_not=batch is not None and metric == measure)
    ]


def _of_line(line: Line, metric: str, batch: int | None, *, says_why_not: bool) -> Iterator[str]:
    name = "" if line.name == SINGLE_LINE else f"{line.name}: "
    fitted = memory_line(line.rows, line.axis, metric)
    if fitted is None:
        if says_why_not:
            needs = (
                f"it takes {MIN_BATCHES} batches whose {MEMORY[metric]} differs and lies on a line to {MOST_MISSED:.0%}"
            )
            yield f"{name}no estimate for {line.axis} {batch}: {needs}."
        return
    least, largest = min(fitted.batches), max(fitted.batches)
    wanted = 2 * largest if batch is None else batch
    if wanted > FARTHEST * largest:
        yield f"{name}no estimate for {line.axis} {wanted:g}: it is above {FARTHEST} times the largest that was run."
    elif wanted < least:
        yield f"{name}no estimate for {line.axis} {wanted:g}: the line is of {line.axis} {least:g} and more."
    else:
        yield f"{name}{fitted.describe(wanted)}."
    if metric == "device_mem_mib":
        yield from _until_full(line, fitted, name)


def _until_full(line: Line, fitted: MemoryLine, name: str) -> Iterator[str]:
    """The batch at which the line reaches the memory of the GPU, where that is near enough to say so."""
    sizes = {named[1] for named in map(memory_limit, line.rows) if named is not None}
    if len(sizes) != 1:
        return
    (limit,) = sizes
    full = (limit - fitted.fixed) / fitted.per_sample
    farthest = FARTHEST * max(fitted.batches)
    size = f"the {limit:,.0f} MiB of the GPU"
    if full <= farthest:
        yield f"{name}the line reaches {size} at {line.axis} {full:,.0f}; the allocator needs more than that."
    else:
        yield f"{name}by the line, {line.axis} {farthest:g} still fits into {size}."
