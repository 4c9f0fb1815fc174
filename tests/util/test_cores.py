"""The number of cores by the limits of a container."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dmls_ray.util.cores import CpuQuota, cpu_quotas, usable_cores


def group_with(folder: Path, files: Mapping[str, str]) -> None:
    """A control group as the kernel shows it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.fixture
def box(tmp_path: Path) -> Callable[[str], Path]:
    """Function that puts this process into the group /pod/box of a version; returns the folder of all groups."""

    def put(line: str) -> Path:
        group_with(tmp_path / "proc" / "self", {"cgroup": f"9:name=systemd:/\n{line}\n"})
        return tmp_path / "cgroup"

    return put


@pytest.mark.parametrize(
    ("line", "place", "limit", "cores"),
    [
        ("0::/pod/box", "", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/pod/box", "", {"cpu.max": "max 100000\n"}, None),
        ("3:cpu:/pod/box", "cpu", {"cpu.cfs_quota_us": "400000\n", "cpu.cfs_period_us": "100000\n"}, 4.0),
        ("3:cpu:/pod/box", "cpu", {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, None),
        ("3:cpu,cpuacct:/pod/box", "cpu,cpuacct", {"cpu.cfs_quota_us": "5\n", "cpu.cfs_period_us": "10\n"}, 0.5),
        ("0::/pod/box", "", {}, None),
    ],
)
def test_the_quota_is_that_of_either_version_of_control_groups(
    box: Callable[[str], Path], tmp_path: Path, line: str, place: str, limit: Mapping[str, str], cores: float | None
) -> None:
    cgroups = box(line)
    group = cgroups / place / "pod" / "box"
    group_with(group, {**limit, "cpu.stat": "usage_usec 12\nnr_periods 40\nnr_throttled 10\nthrottled_usec 90\n"})
    expected = {} if cores is None else {group: CpuQuota(cores=cores, periods=40, throttled=10)}
    assert cpu_quotas(tmp_path / "proc", cgroups) == expected


def test_a_group_above_has_a_quota_of_its_own(box: Callable[[str], Path], tmp_path: Path) -> None:
    cgroups = box("0::/pod/box")
    stat = {"cpu.stat": "nr_periods 4\nnr_throttled 0\n"}
    group_with(cgroups / "pod", {"cpu.max": "200000 100000\n", **stat})
    group_with(cgroups / "pod" / "box", {"cpu.max": "400000 100000\n", **stat})
    assert sorted(quota.cores for quota in cpu_quotas(tmp_path / "proc", cgroups).values()) == [2, 4]


def test_affinity_limits_the_cores() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
