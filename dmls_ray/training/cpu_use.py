"""`CpuUse`: how many cores a rank computes with, and how many are busy on its machine."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

from dmls_ray.util.cores import cpu_quotas

_OF_OTHERS = 0.2
"""Cores of other processes from which on the children of this one are looked for, which takes milliseconds."""

_START_S = 1.5
"""By how much the start of a process may seem too early, since the kernel gives that of the machine in seconds."""


class CpuUse:
    """What this process, those that it has started, and its machine compute; from now on.

    Of the machine, those cores count that this process may use.
    """

    def __init__(self) -> None:
        self._began, self._began_at = time.monotonic(), time.time()
        # A script may change them.
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        self._own_s = _own_s()
        self._busy_s, self._idle_s = self._machine_s()
        self._quotas = cpu_quotas()

    def read(self) -> dict[str, float]:
        """Means over the time so far: `cpu_cores` of this process, `busy_cores` and `idle_cores` of the machine; and in
        a container with a CPU quota `quota_cores` and `throttled_by_quota`."""
        seconds = time.monotonic() - self._began
        own_s = _own_s() - self._own_s
        busy_s, idle_s = self._machine_s()
        busy_s -= self._busy_s
        if busy_s - own_s > _OF_OTHERS * seconds:
            own_s += self._children_s()
        return {
            "cpu_cores": own_s / seconds,
            "busy_cores": busy_s / seconds,
            "idle_cores": (idle_s - self._idle_s) / seconds,
            **self._of_quotas(),
        }

    def _of_quotas(self) -> dict[str, float]:
        """The tightest quota, and the largest share of periods so far in which one stopped this process."""
        found, shares = {}, []
        quotas = cpu_quotas()
        for group, quota in quotas.items():
            before = self._quotas.get(group, quota)
            if periods := quota.periods - before.periods:
                shares.append((quota.throttled - before.throttled) / periods)
        if quotas:
            found["quota_cores"] = min(quota.cores for quota in quotas.values())
        if shares:
            found["throttled_by_quota"] = max(shares)
        return found

    def _children_s(self) -> float:
        """CPU seconds of the processes that this one, and those, have started since then, and that have not ended."""
        total = 0.0
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                if child.create_time() >= self._began_at - _START_S:
                    total += sum(child.cpu_times()[:4])
        return total

    def _machine_s(self) -> tuple[float, float]:
        """Seconds that the cores which this process may use were busy, and idle."""
        times = psutil.cpu_times(percpu=True)
        if self._cores:
            times = [item for core, item in enumerate(times) if core in self._cores]
        idle = sum(item.idle + getattr(item, "iowait", 0.0) for item in times)
        # Time of virtual machines is in that of the user.
        counted = sum(sum(item) - getattr(item, "guest", 0.0) - getattr(item, "guest_nice", 0.0) for item in times)
        return counted - idle, idle


def _own_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
