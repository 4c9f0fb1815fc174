"""The least peak memory of a rank."""

from __future__ import annotations

from dmls_ray.analysis.advise.objective import Objective, Request
from dmls_ray.analysis.table.model import Table


class Memory(Objective):
    name = "memory"
    work_matters = True
    follows_learning_rate = False

    @classmethod
    def metric(cls, table: Table, request: Request) -> str:
        return "peak_mem_mib"
