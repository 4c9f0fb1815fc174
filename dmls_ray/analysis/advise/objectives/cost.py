"""The least price of a run, or of the time to a test accuracy."""

from __future__ import annotations

from typing import Self

from dmls_ray.analysis.advise.objective import TIME_TO_TARGET, Objective, Request
from dmls_ray.analysis.advise.target import target_of
from dmls_ray.analysis.stats.formatting import GENERIC
from dmls_ray.analysis.table.model import Table
from dmls_ray.util.errors import ConfigError


class Cost(Objective):
    name = "cost"
    needs_times = True
    takes_price = True
    work_matters = True

    @classmethod
    def settle(cls, table: Table, request: Request) -> Self:
        target = None if request.target is None else target_of(table, request.target)
        if target is None and table.questions.duration_set_by:
            raise ConfigError(
                f"--for cost needs runs that end when their work is done, and {table.questions.duration_set_by}; "
                "give --for throughput."
            )
        return cls(
            measure="total_s" if target is None else TIME_TO_TARGET,
            label="cost/run" if target is None else f"cost to {target:g}",
            form=GENERIC,
            minimizes=True,
            target=target,
            price_per_hour=request.price_per_hour,
        )

    def caveats(self) -> list[str]:
        return [
            "what starting ranks costs, and ranks that stand idle: the seconds of a run times its ranks are counted."
        ]
