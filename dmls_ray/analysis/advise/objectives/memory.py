"""The least memory of a rank."""

from __future__ import annotations

from dmls_ray.analysis.advise.objective import Candidate, Objective, Request
from dmls_ray.analysis.memory import EQUAL_HOST_MIB, MEMORY, hardly_differs, memory_metric
from dmls_ray.analysis.stats.block_model import BlockModel
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

    def counts(self, value: float) -> bool:
        return value > 0 or (self._is_growth and value == 0)

    def badness(self, value: float) -> float:
        # A resident set that did not grow has a growth of 0, and what is below the noise is as good.
        return super().badness(max(value, EQUAL_HOST_MIB) if self._is_growth else value)

    def caveats(self) -> list[str]:
        if not self._is_growth:
            return []
        return [
            f"which of several needs least where host MiB is below {EQUAL_HOST_MIB:g}: that is within the noise of a "
            f"process, and counts as {EQUAL_HOST_MIB:g}."
        ]

    @property
    def _is_growth(self) -> bool:
        return self.measure == "host_mem_mib"

    def compared(self, candidate: Candidate, baseline: Candidate, model: BlockModel) -> Interval | None:
        """As any objective, but a difference that is of no use, however sure it is, is none."""
        worse = super().compared(candidate, baseline, model)
        sizes = [candidate.value.centre, baseline.value.centre]
        if worse is None or worse.low is None or worse.high is None or not hardly_differs(sizes, self.measure):
            return worse
        return Interval(worse.centre, min(worse.low, 0.0), max(worse.high, 0.0))
