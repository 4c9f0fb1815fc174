"""The hosts of this folder's tests end with the process that created them, and change nothing outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.multihost

TWO_HOSTS = """
import time
from tests.multihost.hosts import Network
with Network() as network:
    first, second = network.add(2)
    first.start(["sleep", "60"])
    first.run(["touch", "/tmp/left-by-host-1"], check=True)
    while not first.processes():
        time.sleep(0.02)
    print(*[first.init.pid, second.init.pid, network.init.pid, first.processes()[0].pid], flush=True)
    time.sleep(60)
"""


def traces() -> list[object]:
    """State of the machine that a network could change."""
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    files = [Path(name).read_text() for name in ("/proc/self/mounts", "/proc/sys/kernel/hostname")]
    return [links, *files, Path("/tmp/left-by-host-1").exists()]


def test_a_network_leaves_nothing_behind_when_its_test_is_killed(hosts_possible: None) -> None:
    before = traces()
    words = [sys.executable, "-c", TWO_HOSTS]
    with subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        processes = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        assert traces() == before
        process.kill()
    assert len(processes) == 4
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
    assert traces() == before
