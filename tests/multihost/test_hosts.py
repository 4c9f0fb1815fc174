"""The hosts that the other tests here stand on: they are apart, links do what they are told, all goes."""

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
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "waited in vain"
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
    """What one host hears of another that repeats what it is told."""

    def __init__(self, here: Host, there: Host) -> None:
        self.other = listening(there, ECHO)
        words = [sys.executable, "-c", ASK, there.address]
        self._process = here.start(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(self, word: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


class Traces:
    """What of the machine a network could leave something in."""

    def __init__(self) -> None:
        self.namespaces = self._told("ip", "netns", "list")
        self.links = self._told("ip", "-brief", "link")
        self.mounts = Path("/proc/self/mounts").read_text()
        self.host_name = socket.gethostname()
        self.files = sorted(str(path) for path in Path("/tmp").glob("*") if path.name in ("ray", "home", "cache"))

    @staticmethod
    def _told(*words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_hosts_have_names_addresses_and_processes_of_their_own(network: Network) -> None:
    one, two = network.add(2)
    sleeper = one.start(["sleep", "60"])
    wait_for(lambda: len(one.processes()) == 1)
    assert one.run(["hostname"]).stdout == "host-1\n"
    assert two.run(["hostname"]).stdout == "host-2\n"
    assert "inet 10.77.0.2/24" in two.run(["ip", "address"]).stdout
    assert "sleep 60" in one.run(["ps", "ax"]).stdout
    assert "sleep 60" not in two.run(["ps", "ax"]).stdout
    assert sleeper.poll() is None


def test_tmp_and_shared_memory_are_a_hosts_own_and_the_tests_folders_are_shared(
    network: Network, tmp_path: Path
) -> None:
    one, two = network.add(2)
    for folder in ("/tmp", "/dev/shm", str(tmp_path)):
        one.run(["touch", f"{folder}/left-by-host-1"], check=True)
    seen = two.run(["find", "/tmp", "/dev/shm", "-name", "left-by-host-1"]).stdout.split()
    assert seen == [str(tmp_path / "left-by-host-1")]
    assert not Path("/tmp/left-by-host-1").exists()
    assert (tmp_path / "left-by-host-1").exists()


def test_hosts_reach_each_other_by_name_and_nothing_else(network: Network) -> None:
    one, two = network.add(2)
    assert two.address in one.run(["getent", "hosts", "host-2"]).stdout
    assert Conversation(one, two).say("hello") == "heard hello"
    outside = one.python("import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)")
    assert "Network is unreachable" in outside.stderr


def test_a_signal_reaches_the_process_and_its_end_is_told(network: Network) -> None:
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


def test_what_is_orphaned_and_ends_is_no_zombie(network: Network) -> None:
    (host,) = network.add()
    host.run(["sh", "-c", "sh -c 'sleep 0.2' & exit 0"], check=True)
    time.sleep(0.5)
    assert host.processes() == []


def test_of_a_cut_link_nobody_is_told_and_a_mended_one_goes_on(network: Network) -> None:
    one, two = network.add(2)
    talk = Conversation(one, two)
    assert talk.say("before") == "heard before"
    two.cut()
    assert talk.say("during") == "heard nothing"
    assert talk.other.poll() is None
    two.mend()
    wait_for(lambda: "during" in talk.say("after"))


def test_a_power_cut_ends_everything_at_once_and_nobody_hears_of_it(network: Network) -> None:
    one, two = network.add(2)
    talk = Conversation(one, two)
    assert talk.say("before") == "heard before"
    processes = two.processes()
    two.kill()
    assert not any(process.is_running() for process in processes)
    assert talk.say("after") == "heard nothing"
    with pytest.raises(HostsError, match="no power"):
        two.run(["true"])


def test_a_revived_host_has_its_name_and_address_and_nothing_else(network: Network) -> None:
    one, two = network.add(2)
    two.run(["touch", "/tmp/left"], check=True)
    two.shape("100mbit")
    two.revive()
    assert two.run(["hostname"]).stdout == "host-2\n"
    assert two.run(["ls", "/tmp/left"]).returncode != 0
    assert "rate 100Mbit" in two.run(["tc", "qdisc", "show", "dev", "eth0"]).stdout
    assert Conversation(one, two).say("again") == "heard again"


@pytest.mark.parametrize(("rate", "expected"), [("1gbit", 1e9), ("100mbit", 1e8)])
def test_a_shaped_link_has_its_rate_in_both_directions(network: Network, rate: str, expected: float) -> None:
    one, two = network.add(2)
    two.shape(rate)
    for sender, receiver in ((one, two), (two, one)):
        for size in (1 << 20, 16 << 20):
            # Where this machine is busy elsewhere a transfer is slower, or faster by the clock of a receiver that was
            # late: a link of another rate has none of ten within these bounds.
            found = [bits_per_s(sender, receiver, size)]
            while abs(found[-1] / expected - 1) > 0.15 and len(found) < 10:
                found.append(bits_per_s(sender, receiver, size))
            assert found[-1] == pytest.approx(expected, rel=0.15), found
    two.unshape()
    assert bits_per_s(one, two, 16 << 20) > 2e9


def test_a_multi_homed_host_has_a_name_and_an_address_that_mislead(network: Network) -> None:
    one, two = network.add(2, multi_homed=True)
    assert one.run(["getent", "hosts", "host-1"]).stdout.split()[0] == "127.0.1.1"
    assert two.run(["getent", "hosts", "host-1"]).stdout.split()[0] == one.address
    addresses = one.run(["ip", "-brief", "-4", "address"]).stdout.split()
    assert addresses.index(f"{AUX_ADDRESS}/16") < addresses.index(f"{one.address}/24")
    assert Conversation(one, two).say("hello") == "heard hello"


def test_nothing_is_left_of_a_network(shared_folders: list[Path], hosts_possible: None) -> None:
    before = Traces()
    with Network(shared_folders) as network:
        one, two = network.add(2)
        one.shape("1gbit")
        sleeper = one.start(["sleep", "60"])
        two.kill()
        during = [*one.processes(), psutil.Process(one.init.pid), psutil.Process(network.init.pid)]
        assert len(during) == 3
        assert vars(Traces()) == vars(before)
    assert sleeper.returncode == -signal.SIGKILL
    assert not any(process.is_running() for process in during)
    assert psutil.Process().children() == []
    assert vars(Traces()) == vars(before)


def test_nothing_is_left_where_the_test_itself_is_killed(hosts_possible: None) -> None:
    script = """
import time
from tests.multihost.hosts import Network
with Network() as network:
    one, two = network.add(2)
    one.start(["sleep", "60"])
    while not one.processes():
        time.sleep(0.02)
    print(*[one.init.pid, two.init.pid, network.init.pid, one.processes()[0].pid], flush=True)
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


def test_without_root_or_a_tool_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostsError, match=r"needs .*ip.*nsenter"):
        Network()
    monkeypatch.undo()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(HostsError, match="needs root"):
        Network()
