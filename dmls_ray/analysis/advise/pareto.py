"""The Pareto front: the trials that no other trial beats in every metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmls_ray.analysis.findings.losers import Loser, losers_of
from dmls_ray.analysis.memory import MEMORY, hardly_differs, memory_metric
from dmls_ray.analysis.metrics import quantity_of
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Row

_DECIMALS = {"total_s": 3, "host_mem_mib": 0}
"""Digits to which means are compared; other measures to four digits, shares to three decimals."""


@dataclass(frozen=True)
class Front:
    """The trials of a table that no other trial beats."""

    axes: Sequence[str]
    """The metrics by which trials are compared."""
    rows: Sequence[Row]
    """The trials that report all these metrics, and whose ranks trained one model together."""
    places: Sequence[int]
    """Positions in `rows` of the trials on the front."""
    memory: str
    """The metric of memory; empty if none was measured."""
    losers: Sequence[Loser]
    """Trials that are not on it since they lose accuracy against other choices."""

    @property
    def is_of_like_memory(self) -> bool:
        """Whether memory was measured, and left out since it hardly differs."""
        return bool(self.memory) and self.memory not in self.axes


def costs_of(table: Table) -> list[str]:
    """The metrics that a trial should have little of: the axes of a front besides accuracy.

    The duration of runs that go on for a given time is no cost.
    """
    memory = memory_metric(table.rows)
    return [*([] if table.questions.duration_set_by else ["total_s"]), *([memory] if memory else [])]


def front_of(
    table: Table, learnt: str = "test_accuracy", *, minimizes: bool = False, any_accuracy: bool = False
) -> Front:
    """The front of less time a run, less memory and more accuracy, by means.

    Means are rounded to the digits of a table, so that a tenth of a MiB beats no trial. A search has no times: its
    front is of memory and accuracy.

    Args:
        table: the sweep's table.
        learnt: the metric in the place of accuracy; left out if no trial reports it.
        minimizes: whether less of it is better.
        any_accuracy: whether a trial may be on the front that loses accuracy.
    """
    together = [row for row in table.rows if not row.independent_ranks]
    # What a search stopped has the accuracy of an early epoch.
    rows = [row for row in together if row.value_of(learnt) is not None and not row.is_stopped]
    accuracies = [learnt] if rows else []
    rows = rows or together
    costs = [name for name in costs_of(table) if name != learnt and any(row.value_of(name) is not None for row in rows)]
    rows = [row for row in rows if all(row.value_of(name) is not None for name in costs)]
    memory = next((name for name in costs if name in MEMORY), "")
    is_equal = hardly_differs([row.value_of(memory) or 0.0 for row in rows], memory)
    axes = [*(name for name in costs if name != memory or not is_equal), *accuracies]
    losers = {} if any_accuracy else losers_of(table, rows)
    chosen = [place for place, row in enumerate(rows) if row.trial_id not in losers]
    points = [
        [_rounded(rows[place], name) * (-1 if name == learnt and not minimizes else 1) for name in axes]
        for place in chosen
    ]
    return Front(axes, rows, [chosen[place] for place in front(points)], memory, list(losers.values()))


def _rounded(row: Row, measure: str) -> float:
    level = row.value_of(measure)
    assert level is not None, measure
    decimals = 3 if quantity_of(measure) == "share" else _DECIMALS.get(measure)
    return float(f"{level:.4g}") if decimals is None else round(level, decimals)


def front(points: Sequence[Sequence[float]]) -> list[int]:
    """The points that no other is at least as good as in everything and better than in something, by their places.

    Points that are equal in everything are all on the front, or none of them is.

    Args:
        points: of each, what it costs; less is better throughout, so give an accuracy with a minus.
    """
    front: list[int] = []
    # In the order of their values a point comes after all that could beat it. Beaten points beat no others that a
    # point on the front does not beat.
    for place in sorted(range(len(points)), key=lambda place: tuple(points[place])):
        if not any(_beats(points[better], points[place]) for better in front):
            front.append(place)
    return sorted(front)


def _beats(point: Sequence[float], other: Sequence[float]) -> bool:
    return tuple(point) != tuple(other) and all(a <= b for a, b in zip(point, other, strict=True))
