"""The hosts of this folder's tests: they are isolated, links obey their settings, nothing remains."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.conftest import PROJECT
from tests.multihost.hosts import AUX_ADDRESS, Host, HostsError, Network, OnHost

pytestmark = pytest.mark.multihost

SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000)) as there:
    there.sendall(bytes(int(sys.argv[2])))
    there.shutdown(socket.SHUT_WR)
    there.recv(1)
"""
RECEIVE = """
import socket, time
with socket.create_server(("", 7000)) as server:
    print("listening", flush=True)
    there, _ = server.accept()
    with there:
        first, began, size = len(there.recv(1)), time.monotonic(), 0
        while got := there.recv(1 << 20):
            size += len(got)
        print(size * 8 / (time.monotonic() - began), flush=True)
"""
ECHO = """
import socket
with socket.create_server(("", 7000)) as server:
    print("listening", flush=True)
    there, _ = server.accept()
    with there:
        while got := there.recv(100):
            there.sendall(got)
        print("the other side has closed", flush=True)
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
        except OSError as error:
            print("failed", error, flush=True)
"""


def wait_for(condition: Callable[[], object], within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.02)


def listening(host: Host, script: str) -> OnHost:
    process = host.start([sys.executable, "-c", script])
    wait_for(lambda: "listening" in process.printed())
    return process


def bits_per_s(sender: Host, receiver: Host, size: int) -> float:
    server = listening(receiver, RECEIVE)
    assert sender.python(SEND, receiver.address, str(size)).returncode == 0
    server.wait(20)
    return float(server.printed().split()[-1])


class Conversation:
    """Connection of one host to an echo server on another host."""

    def __init__(self, here: Host, there: Host) -> None:
        self.server = listening(there, ECHO)
        words = [sys.executable, "-c", ASK, there.address]
        self._process = here.start(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(self, word: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


class Traces:
    """State of the machine that a network could change."""

    def __init__(self) -> None:
        self.namespaces = self._output("ip", "netns", "list")
        self.links = self._output("ip", "-brief", "link")
        self.mounts = Path("/proc/self/mounts").read_text()
        self.host_name = socket.gethostname()
        self.files = sorted(str(path) for path in Path("/tmp").glob("*") if path.name in ("ray", "home", "cache"))

    @staticmethod
    def _output(*words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_each_host_has_a_name_an_address_and_processes(network: Network) -> None:
    first, second = network.add(2)
    sleeper = first.start(["sleep", "60"])
    wait_for(lambda: len(first.processes()) == 1)
    assert first.run(["hostname"]).stdout == "host-1\n"
    assert second.run(["hostname"]).stdout == "host-2\n"
    assert "inet 10.77.0.2/24" in second.run(["ip", "address"]).stdout
    assert "sleep 60" in first.run(["ps", "ax"]).stdout
    assert "sleep 60" not in second.run(["ps", "ax"]).stdout
    assert sleeper.poll() is None


def test_hosts_share_the_folders_of_tests_and_neither_tmp_nor_shared_memory(network: Network, tmp_path: Path) -> None:
    first, second = network.add(2)
    for folder in ("/tmp", "/dev/shm", str(tmp_path)):
        first.run(["touch", f"{folder}/left-by-host-1"], check=True)
    seen = second.run(["find", "/tmp", "/dev/shm", "-name", "left-by-host-1"]).stdout.split()
    assert seen == [str(tmp_path / "left-by-host-1")]
    assert not Path("/tmp/left-by-host-1").exists()
    assert (tmp_path / "left-by-host-1").exists()


def test_hosts_reach_each_other_by_name_and_nothing_else(network: Network) -> None:
    first, second = network.add(2)
    assert second.address in first.run(["getent", "hosts", "host-2"]).stdout
    assert Conversation(first, second).say("hello") == "heard hello"
    outside = first.python("import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)")
    assert "Network is unreachable" in outside.stderr


def test_a_signal_reaches_the_process_and_its_exit_code_is_returned(network: Network) -> None:
    (host,) = network.add()
    script = (
        "import time\ntry:\n  print('up', flush=True); time.sleep(60)\nexcept KeyboardInterrupt:\n  raise SystemExit(7)"
    )
    process = host.start([sys.executable, "-c", script])
    wait_for(lambda: "up" in process.printed())
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 7
    killed = host.start(["sleep", "60"])
    wait_for(host.processes)
    killed.kill()
    assert killed.wait(10) == -signal.SIGKILL
    assert host.processes() == []


def test_an_orphaned_process_that_ends_is_no_zombie(network: Network) -> None:
    (host,) = network.add()
    host.run(["sh", "-c", "sh -c 'sleep 0.2' & exit 0"], check=True)
    wait_for(lambda: host.processes() == [])


def test_a_cut_link_gives_no_error_and_connections_continue_when_it_is_restored(network: Network) -> None:
    first, second = network.add(2)
    talk = Conversation(first, second)
    assert talk.say("before") == "heard before"
    second.cut()
    assert talk.say("during") == "heard nothing"
    assert talk.server.poll() is None
    second.restore()
    wait_for(lambda: "during" in talk.say("after"))


def test_a_power_cut_ends_all_processes_at_once_without_a_message(network: Network) -> None:
    first, second = network.add(2)
    talk = Conversation(first, second)
    assert talk.say("before") == "heard before"
    processes = second.processes()
    second.kill()
    assert not any(process.is_running() for process in processes)
    assert talk.say("after") == "heard nothing"
    with pytest.raises(HostsError, match="no power"):
        second.run(["true"])


def test_a_revived_host_has_its_name_and_address_and_nothing_else(network: Network) -> None:
    first, second = network.add(2)
    second.run(["touch", "/tmp/left"], check=True)
    second.shape("100mbit")
    second.revive()
    assert second.run(["hostname"]).stdout == "host-2\n"
    assert second.run(["ls", "/tmp/left"]).returncode != 0
    assert "rate 100Mbit" in second.run(["tc", "qdisc", "show", "dev", "eth0"]).stdout
    assert Conversation(first, second).say("again") == "heard again"


@pytest.mark.parametrize(("rate", "expected"), [("1gbit", 1e9), ("100mbit", 1e8)])
def test_a_shaped_link_has_its_rate_in_both_directions(network: Network, rate: str, expected: float) -> None:
    first, second = network.add(2)
    second.shape(rate)
    for sender, receiver in ((first, second), (second, first)):
        for size in (1 << 20, 16 << 20):
            # A busy machine makes a transfer slower. It looks faster where the receiver started its clock late. With
            # another rate of the link none of ten transfers is within these bounds.
            rates = [bits_per_s(sender, receiver, size)]
            while abs(rates[-1] / expected - 1) > 0.15 and len(rates) < 10:
                rates.append(bits_per_s(sender, receiver, size))
            assert rates[-1] == pytest.approx(expected, rel=0.15), rates
    second.unshape()
    assert any(bits_per_s(first, second, 16 << 20) > 2e9 for _ in range(10)), "no transfer exceeds the former limit"


def test_a_multi_homed_host_has_a_misleading_name_and_address(network: Network) -> None:
    first, second = network.add(2, multi_homed=True)
    assert first.run(["getent", "hosts", "host-1"]).stdout.split()[0] == "127.0.1.1"
    assert second.run(["getent", "hosts", "host-1"]).stdout.split()[0] == first.address
    addresses = first.run(["ip", "-brief", "-4", "address"]).stdout.split()
    assert addresses.index(f"{AUX_ADDRESS}/16") < addresses.index(f"{first.address}/24")
    assert Conversation(first, second).say("hello") == "heard hello"


def test_a_network_leaves_nothing_behind(shared_folders: list[Path], hosts_possible: None) -> None:
    before = Traces()
    with Network(shared_folders) as network:
        first, second = network.add(2)
        first.shape("1gbit")
        sleeper = first.start(["sleep", "60"])
        second.kill()
        during = [*first.processes(), psutil.Process(first.init.pid), psutil.Process(network.init.pid)]
        assert len(during) == 3
        assert vars(Traces()) == vars(before)
    assert sleeper.returncode == -signal.SIGKILL
    assert not any(process.is_running() for process in during)
    assert psutil.Process().children() == []
    assert vars(Traces()) == vars(before)


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
    before = Traces()
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        processes = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        process.kill()
    assert len(processes) == 4
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
    assert vars(Traces()) == vars(before)


def test_a_missing_tool_or_missing_root_rights_are_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostsError, match=r"needs .*ip.*nsenter"):
        Network()
    monkeypatch.undo()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(HostsError, match="needs root"):
        Network()
