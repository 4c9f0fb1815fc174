"""The most images per second; the shortest runs where no rate is known."""

from __future__ import annotations

from dmls_ray.analysis.advise.objective import Objective, Request
from dmls_ray.analysis.table.model import Table


class Throughput(Objective):
    name = "throughput"
    needs_times = True
    work_matters = True
    ranks_may_help = True

    @classmethod
    def metric(cls, table: Table, request: Request) -> str:
        timed = [row for row in table.rows if row.value_of("total_s") is not None]
        return "images_per_s" if all(row.value_of("images_per_s") is not None for row in timed) else "total_s"
