"""The most images per second; the shortest runs where no rate is known."""

from __future__ import annotations

from typing import ClassVar

from dmls_ray.analysis.advise.objective import Objective, Request
from dmls_ray.analysis.table.model import Table


class Throughput(Objective):
    name: ClassVar[str] = "throughput"
    needs_times: ClassVar[bool] = True
    work_matters: ClassVar[bool] = True
    ranks_may_help: ClassVar[bool] = True

    @classmethod
    def metric(cls, table: Table, request: Request) -> str:
        timed = [row for row in table.rows if row.median_of("total_s") is not None]
        return "images_per_s" if all(row.median_of("images_per_s") is not None for row in timed) else "total_s"
