"""Mean power of what a rank runs on, while its steps are counted."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from dmls_ray.records.cpu_state import package_energy_j
from dmls_ray.records.gpu_state import energy_j
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.utilization import nvml_handle

_MOST_S = 600.0
"""Time after which a counter of a processor may have begun again at 0 unseen: 262 kJ are 437 W for so long."""


class PowerMeter:
    """Energy between `begin` and `end`, of all these times together.

    Args:
        counted_j: reads the joules that each counter has counted; empty without a meter, or where it does not answer.
        share: part of them that is this rank's.
    """

    def __init__(self, counted_j: Callable[[], list[float]], share: float = 1.0) -> None:
        self._counted_j, self._share = counted_j, share
        self._joules = self._seconds = 0.0

    @classmethod
    def of(cls, rank: RankInfo) -> PowerMeter:
        """The meter of a rank: of its GPU alone, or of an equal share of the processors of its machine."""
        device = torch.device(rank.device)
        if device.type != "cuda":
            return cls(package_energy_j, 1 / rank.local_world_size)
        gpu = nvml_handle(device)
        if gpu is None or energy_j(gpu) is None:
            return cls(list)
        return cls(lambda: [joules for joules in [energy_j(gpu)] if joules is not None])

    def begin(self) -> None:
        self._began, self._before = time.perf_counter(), self._counted_j()

    def end(self) -> None:
        after, seconds = self._counted_j(), time.perf_counter() - self._began
        # A counter may begin or stop to answer at any time.
        has_same_counters = len(after) == len(self._before) > 0
        parts = [last - first for first, last in zip(self._before, after, strict=False)]
        if has_same_counters and min(parts) >= 0 and seconds < _MOST_S:
            self._joules += self._share * sum(parts)
            self._seconds += seconds

    def read(self) -> dict[str, float | None]:
        """The mean power in watts; None without a meter."""
        return {"power_w": self._joules / self._seconds if self._joules else None}
