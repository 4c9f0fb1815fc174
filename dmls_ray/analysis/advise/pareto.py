"""The Pareto front: the trials that no other trial beats in every metric."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmls_ray.analysis.findings.effects import Effect
from dmls_ray.analysis.findings.losers import losers_of
from dmls_ray.analysis.memory import MEMORY, hardly_differs, memory_metric
from dmls_ray.analysis.metrics import quantity_of
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial

_DECIMALS = {"total_s": 3, "host_mem_mib": 0}
"""Digits to which means are compared; other metrics to four digits, shares to three decimals."""


@dataclass(frozen=True)
class Front:
    """The trials of a table that no other trial beats."""

    axes: Sequence[str]
    """The metrics by which trials are compared."""
    rows: Sequence[Trial]
    """The trials that report all these metrics, and whose ranks trained one model together."""
    best: Sequence[Trial]
    """The trials on the front."""
    memory: str
    """The metric of memory; empty if none was measured."""
    losers: Sequence[Effect]
    """Trials that are not on it since they lose accuracy against other choices."""

    @property
    def is_of_like_memory(self) -> bool:
        """Whether memory was measured, and left out since it hardly differs."""
        return bool(self.memory) and self.memory not in self.axes


def costs_of(table: Table) -> list[str]:
    """The metrics that a trial should have little of: the axes of a front besides accuracy.

    The duration of runs that go on for a given time is no cost.
    """
    costs = []
    if not table.questions.duration_set_by:
        costs.append("total_s")
    if memory := memory_metric(table.rows):
        costs.append(memory)
    return costs


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
    # The accuracy of a trial that a search stopped is that of an early epoch.
    trained = [row for row in together if not row.is_stopped]
    judged = _reporting(trained, [learnt])
    comparable = judged or together
    costs = [name for name in costs_of(table) if name != learnt and _reporting(comparable, [name])]
    rows = _reporting(comparable, costs)

    memory = next((name for name in costs if name in MEMORY), "")
    axes = list(costs)
    if hardly_differs([row.value_of(memory) or 0.0 for row in rows], memory):
        axes.remove(memory)
    signs = dict.fromkeys(axes, 1)
    if judged:
        signs[learnt] = 1 if minimizes else -1

    losers = {} if any_accuracy else losers_of(table, rows)
    points = {}
    for index, row in enumerate(rows):
        if row.trial_id not in losers:
            points[index] = tuple(sign * _rounded(row, name) for name, sign in signs.items())
    return Front(list(signs), rows, [rows[index] for index in front(points)], memory, list(losers.values()))


def _reporting(rows: Sequence[Trial], metrics: Sequence[str]) -> list[Trial]:
    """The trials that report all of some metrics."""
    return [row for row in rows if None not in map(row.value_of, metrics)]


def _rounded(row: Trial, metric: str) -> float:
    level = row.value_of(metric)
    assert level is not None, metric
    if quantity_of(metric) == "share":
        return round(level, 3)
    if metric in _DECIMALS:
        return round(level, _DECIMALS[metric])
    return float(f"{level:.4g}")


def front(points: Mapping[int, tuple[float, ...]]) -> list[int]:
    """The points that no other is at least as good as in everything and better than in something, by their keys.

    Points that are equal in everything are all on the front, or none of them is.

    Args:
        points: of each, what it costs; less is better throughout, so give an accuracy with a minus.
    """
    found: list[int] = []
    # In the order of their values a point comes after all that could beat it. Beaten points beat no others that a
    # point on the front does not beat.
    for index in sorted(points, key=points.__getitem__):
        point = points[index]
        others = [points[place] for place in found]
        is_beaten = any(other != point and all(map(operator.le, other, point)) for other in others)
        if not is_beaten:
            found.append(index)
    return sorted(found)
