"""The shortest time to a test accuracy."""

from __future__ import annotations

from typing import Self

from dmls_ray.analysis.advise.objective import TIME_TO_TARGET, Objective, Request
from dmls_ray.analysis.advise.target import target_of
from dmls_ray.analysis.stats.formatting import SECONDS
from dmls_ray.analysis.table.model import Table


class TimeToAccuracy(Objective):
    name = "time-to-accuracy"
    needs_times = True
    ranks_may_help = True

    @classmethod
    def settle(cls, table: Table, request: Request) -> Self:
        target = target_of(table, request.target)
        return cls(measure=TIME_TO_TARGET, label=f"s to {target:g}", form=SECONDS, minimizes=True, target=target)
