"""How many CPU cores this process may use, and how often the quota of its container has stopped it."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dmls_ray.util.free_memory import own_cgroups

_PLACES = {"0::/": "", "cpu:/": "cpu", "cpu,cpuacct:/": "cpu,cpuacct"}
"""What stands before the name of a control group -> folder, in version 2, and twice in version 1."""


@dataclass(frozen=True, kw_only=True)
class CpuQuota:
    """The quota of a control group (Linux, Documentation/scheduler/sched-bwc.rst)."""

    cores: float
    periods: int
    """Periods of the quota, of 100 ms by default, in which the group has computed since it exists."""
    throttled: int
    """Of these, those in which it had used up its quota and was stopped until the next one."""


def usable_cores() -> int:
    """Return the number of cores by the affinity of this process, and by the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [math.ceil(quota.cores) for quota in cpu_quotas().values()]
    return max(1, min([cores, *quotas]))


def cpu_quotas(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> dict[Path, CpuQuota]:
    """The folders of the control groups of this process that have a quota -> the quota; empty without one.

    Args:
        proc: where the kernel describes processes.
        cgroups: where it describes control groups.
    """
    quotas = {}
    for version, place in _PLACES.items():
        for folder in own_cgroups(proc, cgroups / place, version):
            with suppress(OSError, ValueError, KeyError):  # no group of this version, or one without the controller
                if cores := _cores_of(folder):
                    lines = (folder / "cpu.stat").read_text(encoding="utf-8").splitlines()
                    counts = dict(line.split() for line in lines)
                    periods, throttled = int(counts["nr_periods"]), int(counts["nr_throttled"])
                    quotas[folder] = CpuQuota(cores=cores, periods=periods, throttled=throttled)
    return quotas


def _cores_of(folder: Path) -> float | None:
    """How many cores a control group may use; None without a limit."""
    names = ["cpu.max"] if (folder / "cpu.max").exists() else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
    text = " ".join((folder / name).read_text(encoding="utf-8") for name in names)
    limit, period = text.split()
    return int(limit) / int(period) if limit.isdigit() and int(period) > 0 else None


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
