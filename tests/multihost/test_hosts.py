"""The hosts of this folder's tests: they are isolated, links obey their settings, nothing remains."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.conftest import PROJECT
from tests.multihost.hosts import Host, HostsError, Network

pytestmark = pytest.mark.multihost

ECHO = """
import socket
with socket.create_server(("", 7000)) as server:
    print("listening", flush=True)
    there, _ = server.accept()
    with there:
        while got := there.recv(100):
            there.sendall(got)
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000)) as there:
    there.settimeout(2)
    for line in sys.stdin:
        there.sendall(line.encode())
        try:
            print("heard", there.recv(100).decode().strip(), flush=True)
        except TimeoutError:
            print("heard nothing", flush=True)
"""


def wait_for(condition: Callable[[], object], within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.02)


def conversation(here: Host, there: Host) -> Callable[[str], str]:
    """A function that sends a word to an echo server on another host, by a connection that is kept."""
    server = there.start([sys.executable, "-c", ECHO])
    wait_for(lambda: "listening" in server.printed())
    process = here.start(
        [sys.executable, "-c", ASK, there.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1
    )

    def say(word: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{word}\n")
        return process.stdout.readline().strip()

    return say


def traces() -> list[str]:
    """State of the machine that a network could change."""
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    return [links, Path("/proc/self/mounts").read_text(), Path("/proc/sys/kernel/hostname").read_text()]


def test_hosts_share_the_folders_of_tests_and_nothing_else(network: Network, tmp_path: Path) -> None:
    first, second = network.add(2)
    for folder in ("/tmp", "/dev/shm", str(tmp_path)):
        first.run(["touch", f"{folder}/left-by-host-1"], check=True)
    seen = second.run(["find", "/tmp", "/dev/shm", "-name", "left-by-host-1"]).stdout.split()
    assert seen == [str(tmp_path / "left-by-host-1")]
    assert not Path("/tmp/left-by-host-1").exists()
    first.start(["sleep", "60"])
    wait_for(first.processes)
    assert "sleep 60" not in second.run(["ps", "ax"]).stdout
    assert first.run(["hostname"]).stdout == "host-1\n"
    assert second.address in first.run(["getent", "hosts", "host-2"]).stdout
    outside = first.python("import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)")
    assert "Network is unreachable" in outside.stderr


def test_a_cut_link_gives_no_error_and_a_host_without_power_sends_no_message(network: Network) -> None:
    first, second = network.add(2)
    second.shape("100mbit")
    second.run(["touch", "/tmp/left"], check=True)
    say = conversation(first, second)
    assert say("before") == "heard before"
    second.cut()
    assert say("during") == "heard nothing"
    second.restore()
    wait_for(lambda: "during" in say("after"))

    processes = second.processes()
    second.kill()
    assert not any(process.is_running() for process in processes)
    wait_for(lambda: say("later") == "heard nothing")
    with pytest.raises(HostsError, match="no power"):
        second.run(["true"])

    second.revive()
    assert second.run(["hostname"]).stdout == "host-2\n"
    assert second.run(["ls", "/tmp/left"]).returncode != 0
    assert "rate 100Mbit" in second.run(["tc", "qdisc", "show", "dev", "eth0"]).stdout
    assert conversation(first, second)("again") == "heard again"


def test_a_network_leaves_nothing_behind_when_its_test_is_killed(hosts_possible: None) -> None:
    script = """
import time
from tests.multihost.hosts import Network
with Network() as network:
    first, second = network.add(2)
    first.start(["sleep", "60"])
    while not first.processes():
        time.sleep(0.02)
    print(*[first.init.pid, second.init.pid, network.init.pid, first.processes()[0].pid], flush=True)
    time.sleep(60)
"""
    before = traces()
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        processes = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        assert traces() == before
        process.kill()
    assert len(processes) == 4
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
    assert traces() == before
