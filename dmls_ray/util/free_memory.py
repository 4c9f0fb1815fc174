"""`free_mib`: how much memory the processes of this machine, or of its container, can still take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

_FILES = {
    "0::/": ("", "memory.max", "memory.current", "inactive_file"),
    "memory:/": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""What stands before the name of a control group -> folder, and names of its limit, use and pages of files, in versions
2 and 1."""


def own_cgroups(
    proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup"), version: str = "0::/"
) -> Iterator[Path]:
    """The folders of the control group of this process and of those above it.

    Args:
        proc: where the kernel describes processes.
        cgroups: where it describes control groups.
        version: what stands before the name of the group: `0::/`, or `memory:/` for version 1.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    group = next((line.partition(version)[2] for line in lines if version in line), None)
    if group is None:
        return
    # In a container without a namespace for groups, the path is that of the host and does not exist here.
    folder = cgroups / group
    yield from (place for place in (folder, *folder.parents) if place.is_relative_to(cgroups))


def free_mib(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> float:
    """Free memory in MiB: of the machine, or of the tightest control group; pages of files count as free."""
    free = psutil.virtual_memory().available / 2**20
    for version, (place, *names) in _FILES.items():
        for folder in own_cgroups(proc, cgroups / place, version):
            with suppress(OSError, ValueError):  # the root has no limit, and `max` is none
                limit, used = (int((folder / name).read_text(encoding="utf-8")) for name in names[:2])
                lines = (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
                files = next(int(line.split()[1]) for line in lines if line.startswith(f"{names[2]} "))
                free = min(free, (limit - used + files) / 2**20)
    return free
