"""Which process is meant, and whether it is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest

from dmls_ray.cluster import processes
from dmls_ray.cluster.processes import end_process, oom_kills


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]) as process:
        yield process
        process.kill()


def started(pid: int) -> float:
    return psutil.Process(pid).create_time()


def test_a_process_that_got_the_pid_of_another_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    assert end_process(sleeper.pid, started(sleeper.pid) + 100), "the one that was meant is gone"
    assert sleeper.poll() is None


def test_a_process_that_is_gone_needs_no_end(sleeper: subprocess.Popen[bytes]) -> None:
    began = started(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert end_process(sleeper.pid, began)


def test_a_kill_without_effect_is_noticed(sleeper: subprocess.Popen[bytes]) -> None:
    with patch.object(psutil.Process, "kill"), patch.object(processes, "KILL_TIMEOUT_S", 0.05):
        assert not end_process(sleeper.pid, started(sleeper.pid))


def test_children_of_a_process_end_with_it() -> None:
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '100']).pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        child = psutil.Process(int(process.stdout.readline()))
        assert end_process(process.pid, started(process.pid))
        assert not psutil.wait_procs([child], timeout=5)[1]


def kernel(tmp_path: Path, group: str, **counts: int) -> tuple[Path, Path]:
    """Files of a kernel: the group of this process, and the counts of groups by their path with _ for /."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(f"1:cpu:/elsewhere\n0::{group}\n")
    (proc / "vmstat").write_text("nr_free_pages 1\noom_kill 100\n")
    for name, count in counts.items():
        folder = cgroups / name.replace("_", "/").removeprefix("root").lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.events").write_text(f"low 0\noom 7\noom_kill {count}\noom_group_kill 0\n")
    return proc, cgroups


@pytest.mark.parametrize(
    ("group", "counts", "expected"),
    [
        ("/user/session", {"user_session": 3, "user": 5}, 3),  # processes of other programs are no evidence
        ("/user/session/deep", {"user_session": 3}, 3),  # where groups below do not count memory
        ("/", {"root": 4}, 4),  # in a container
        ("/kubepods/of/the/host", {"root": 4}, 4),  # in a container without a namespace for groups
        ("/user/session", {}, 100),  # version 1, or no memory controller
    ],
)
def test_the_count_comes_from_the_nearest_group_that_has_one(
    group: str, counts: dict[str, int], expected: int, tmp_path: Path
) -> None:
    assert oom_kills(*kernel(tmp_path, group, **counts)) == expected


def test_a_kernel_that_counts_nothing_is_no_error(tmp_path: Path) -> None:
    assert oom_kills(tmp_path, tmp_path) is None
