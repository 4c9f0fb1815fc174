"""A child of a fork server ends with all that it has started, whoever ends first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from dmls_ray.util.fork_server import ForkServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parent")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer("importlib:import_module", "decimal")
    yield server
    server.close()


def describe(connection: Connection) -> None:
    """Send what a child finds."""
    connection.send(("decimal" in sys.modules, sys.path, os.getcwd(), threading.active_count()))


def send_blocked_signals(connection: Connection) -> None:
    connection.send(signal.pthread_sigmask(signal.SIG_BLOCK, []))


def leave_processes(connection: Connection) -> None:
    """Start a process in the group of the child and one in a session of its own, and end or hang as told.

    Send the ids of the server and of both.
    """
    started = [subprocess.Popen(["sleep", "600"], start_new_session=session) for session in (False, True)]
    connection.send([os.getppid(), *(process.pid for process in started)])
    if connection.recv() == "hang":
        time.sleep(600)


CLIENT = """
from dmls_ray.util.fork_server import ForkServer
from tests.util.test_fork_server import leave_processes
server = ForkServer("builtins:list")
child = server.start(leave_processes)
print(*child.connection.recv(), flush=True)
child.connection.send("hang")
child.wait()
"""


def wait_until_gone(pids: list[int]) -> None:
    until = time.monotonic() + 10
    while any(map(psutil.pid_exists, pids)):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_child_has_the_modules_of_the_server_and_the_folders_of_the_client(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "nets"))
    child = server.start(describe)
    assert child.connection.recv() == (True, sys.path, str(tmp_path), 1)
    assert child.wait() == 0


def test_a_child_can_be_interrupted_where_its_client_cannot() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        server = ForkServer("builtins:list")
        child = server.start(send_blocked_signals)
        assert child.connection.recv() == set()
        child.wait()
        server.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_what_a_child_leaves_behind_ends_with_it(server: ForkServer) -> None:
    child = server.start(leave_processes)
    _, *pids = child.connection.recv()
    child.connection.send("end")
    assert child.wait() == 0
    assert not any(map(psutil.pid_exists, pids))


def test_a_child_that_hangs_can_be_killed_with_all_that_it_has_started(server: ForkServer) -> None:
    child = server.start(leave_processes)
    _, *pids = child.connection.recv()
    child.connection.send("hang")
    threading.Timer(0.1, child.kill).start()
    assert child.wait() == -signal.SIGKILL
    assert not any(map(psutil.pid_exists, pids))


def test_a_kill_after_the_end_of_a_child_leaves_the_next_child_alone(server: ForkServer) -> None:
    before = server.start(describe)
    before.wait()
    child = server.start(leave_processes)
    before.kill()
    child.connection.recv()
    child.connection.send("end")
    assert child.wait() == 0


def test_a_target_that_raises_ends_with_exit_code_1(server: ForkServer) -> None:
    assert server.start(os.rmdir).wait() == 1


def test_a_child_ends_with_its_server() -> None:
    server = ForkServer("builtins:list")
    child = server.start(leave_processes)
    server_pid, *left = child.connection.recv()
    child.connection.send("hang")
    os.kill(server_pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    server.close()
    for pid in left:  # nobody is there who would end what the child has started
        os.kill(pid, signal.SIGKILL)


def test_a_server_and_all_processes_of_its_child_end_with_a_client_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        pids = [int(pid) for pid in client.stdout.readline().split()]
        client.kill()
    assert len(pids) == 3
    wait_until_gone(pids)
