"""The least memory of a rank."""

from __future__ import annotations

from dmls_ray.analysis.advise.objective import Candidate, Objective, Request
from dmls_ray.analysis.memory import MEMORY, hardly_differs, memory_metric
from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.table.model import Table


class Memory(Objective):
    name = "memory"
    work_matters = True
    follows_learning_rate = False
    takes_batch = True

    @classmethod
    def metric(cls, table: Table, request: Request) -> str:
        return memory_metric(table.rows) or next(iter(MEMORY))

    def compared(self, candidate: Candidate, baseline: Candidate, level: float = 0.95) -> Interval | None:
        """As any objective, but a difference that is of no use, however sure it is, is none."""
        worse = super().compared(candidate, baseline, level)
        sizes = [candidate.value.centre, baseline.value.centre]
        if worse is None or worse.low is None or worse.high is None or not hardly_differs(sizes, self.measure):
            return worse
        return Interval(worse.centre, min(worse.low, 0.0), max(worse.high, 0.0))
