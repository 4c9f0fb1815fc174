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


def cores_of_share(place: int, shares: int) -> set[int]:
    """The cores of one of several equal shares of this process's cores.

    Neighbours stay together: threads of one core, then cores of one NUMA node, whose memory they use first.

    Args:
        place: which share, from 0.
        shares: how many.
    """
    cores: dict[tuple[int, int, int], list[int]] = {}
    for number in sorted(os.sched_getaffinity(0)):
        cores.setdefault(_place_of(number), []).append(number)
    ordered = [cores[key] for key in sorted(cores)]
    first, last = place * len(ordered) // shares, (place + 1) * len(ordered) // shares
    return {number for core in ordered[first:last] for number in core}


def _place_of(number: int) -> tuple[int, int, int]:
    """NUMA node, package and core of a processor of Linux; the number itself where the kernel does not say it."""
    folder = Path(f"/sys/devices/system/cpu/cpu{number}")
    nodes = [int(path.name.removeprefix("node")) for path in folder.glob("node[0-9]*")]
    try:
        package, core = (
            int((folder / "topology" / name).read_text(encoding="utf-8")) for name in ("physical_package_id", "core_id")
        )
    except (OSError, ValueError):
        return min(nodes, default=0), 0, number
    return min(nodes, default=0), package, core


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
