"""`usable_cores`: how many CPU cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return the number of cores by the affinity of this process, and by the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = quota_in(_CGROUPS)
    return max(1, min(cores, math.ceil(quota))) if quota else cores


def quota_in(cgroups: Path) -> float | None:
    """Return how many cores the control group of a container may use; None without a limit.

    Args:
        cgroups: where the kernel shows it: `cpu.max` (version 2), or `cpu/cpu.cfs_*` (version 1).
    """
    if (cgroups / "cpu.max").exists():
        limit, period = (cgroups / "cpu.max").read_text(encoding="utf-8").split()
    elif (cgroups / "cpu" / "cpu.cfs_quota_us").exists():
        limit = (cgroups / "cpu" / "cpu.cfs_quota_us").read_text(encoding="utf-8").strip()
        period = (cgroups / "cpu" / "cpu.cfs_period_us").read_text(encoding="utf-8").strip()
    else:
        return None
    return int(limit) / int(period) if limit.isdigit() and int(period) > 0 else None
