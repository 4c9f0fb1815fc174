"""What an axis does to the memory of a rank, in words."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.memory import EXACT, MEMORY, MEMORY_KINDS, hardly_differs, kind_name, memory_metric
from dmls_ray.analysis.metrics import format_of
from dmls_ray.analysis.stats.formatting import format_interval, with_sign
from dmls_ray.analysis.stats.intervals import is_above, verdict_of
from dmls_ray.analysis.summary.answer import Finding
from dmls_ray.analysis.summary.axis import Axis
from dmls_ray.analysis.table.row import Row


def memory_change(first: Row, last: Row) -> str:
    """From one trial to another: `tensor memory from 2.10 to 9.80 MiB (activations 0.90 to 8.60)`.

    The kind in brackets is the one that changes most, if the rest changes less than that kind does. Empty where memory
    is not known.
    """
    metric = memory_metric([first, last])
    before, after = first.text(metric), last.text(metric)
    if not before or not after:
        return ""
    words = MEMORY[metric]
    more = last.difference_from(first, metric)
    if more is not None and verdict_of(more, 0, "more", "less") == "not distinguished" and metric not in EXACT:
        change = format_interval(more, with_sign(format_of(metric)))
        return f"{words} from {before} to {after} MiB (not distinguished: {change})"
    if before == after:
        return f"{words} {before} MiB in both"
    is_small = hardly_differs([row.estimates[metric].centre for row in (first, last)], metric)
    verdict = " (hardly differs)" if is_small else ""
    return f"{words} from {before} to {after} MiB{_main_kind(first, last)}{verdict}"


def memory_among(group: Sequence[Row], axis: str) -> str:
    """Which choices need least memory, and which most; empty where they hardly differ, or perhaps by chance alone."""
    metric = memory_metric(group)
    known = [row for row in group if metric in row.estimates]
    sizes = [row.estimates[metric].centre for row in known]
    if len(known) < 2 or hardly_differs(sizes, metric):
        return ""
    least, most = (known[sizes.index(pick(sizes))] for pick in (min, max))
    more = most.difference_from(least, metric)
    if metric not in EXACT and not is_above(more, 0):
        return ""
    low, high = least.text(metric), most.text(metric)
    lightest, heaviest = (
        ", ".join(str(row.factors[axis]) for row in known if row.text(metric) == text) for text in (low, high)
    )
    return f"{MEMORY[metric]} is least with {lightest}, {low} MiB, and largest with {heaviest}, {high} MiB"


def _main_kind(first: Row, last: Row) -> str:
    """The kind of memory that changes most, in brackets; empty without one."""
    known = [name for name in MEMORY_KINDS if name in first.estimates and name in last.estimates]
    changes = {name: last.estimates[name].centre - first.estimates[name].centre for name in known}
    main = max(changes, key=lambda name: abs(changes[name]), default="")
    if not main or abs(changes[main]) <= sum(abs(change) for name, change in changes.items() if name != main):
        return ""
    kind = kind_name(main)
    plural = kind if kind in ("optimizer", "other") else f"{kind}s"
    return f" ({plural} {first.text(main)} to {last.text(main)})"


def memory_along(axis: Axis) -> list[Finding]:
    """What an axis does to memory in its first group, as a line of an answer; none where it hardly does anything."""
    first = axis.groups[0]
    text = memory_change(first[0], first[-1]) if axis.is_ordered else memory_among(first, axis.name)
    return [Finding("memory", f"{text}{axis.place(first)}")] if text else []
