"""The least memory of a rank."""

from __future__ import annotations

from dmls_ray.analysis.advise.objective import Objective, Request
from dmls_ray.analysis.memory import MEMORY, memory_metric
from dmls_ray.analysis.table.model import Table


class Memory(Objective):
    name = "memory"
    work_matters = True
    follows_learning_rate = False

    @classmethod
    def metric(cls, table: Table, request: Request) -> str:
        return memory_metric(table.rows) or next(iter(MEMORY))
