"""Several hosts on one machine, for tests: each with its own address, name, processes and /tmp, joined by a switch.

A host is one process, its init, in namespaces of its own, and a `Network` one in which the switch is. Nothing has a
name outside of them: no `ip netns`, no link or mount of the machine's own. An init ends when its standard input does,
so however the process that made it ends, all hosts are gone, and two test runs never meet. What is shared is the
machine's disk (as if it were a network's), its processors and memory, and its kernel.

Not to be had: latency. The kernel this was written on has no netem; `tbf` holds a link to a rate only.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

TOOLS = ("ip", "tc", "unshare", "nsenter", "mount", "env")
PREFIX = "10.77.0."
MOST = 16
"""How many hosts a network can have."""

AUX_ADDRESS = "172.17.0.1"
"""What every multi-homed host has besides, and none reaches of another: as with a bridge for containers."""

RAY_PORT = 6379
LOST_SOON = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}
"""For Ray's processes, so that the head gives up a host that is silent after 7 s; a busy one has 2 s for each answer.

By default a host that has lost its power or its link is given up after 63 s (5 times 10 s without an answer, and the
pauses), one whose raylet was killed after 15 s. One that leaves in an orderly way is told of at once, either way.
"""
_OBJECT_STORE_BYTES = 100_000_000

# In the host's own mounts: /tmp (with Ray's sessions and sockets), /dev/shm (with its objects) and the host table. The
# working folder is still the machine's /tmp, which is how folders below it are shared. The last line waits for the end
# of the process that made the host; what is orphaned and ends meanwhile the kernel reaps, as its signal is ignored.
_INIT = r"""
set -e
cd /tmp
mount -t tmpfs -o mode=1777 none /tmp
mount -t tmpfs -o mode=1777 none /dev/shm
for folder in $SHARED; do
    mkdir -p "/tmp/$folder"
    mount --no-canonicalize --bind "./$folder" "/tmp/$folder"
done
cd /
mkdir /tmp/home
printf '%s' "$NAMES" >/tmp/home/hosts
mount --bind /tmp/home/hosts /etc/hosts
echo "$NAME" >/proc/sys/kernel/hostname
echo ready
exec env --ignore-signal=CHLD cat >/dev/null
"""


class HostsError(Exception):
    """Hosts cannot be had here, or a command that makes them failed."""


class OnHost(subprocess.Popen[str]):
    """A process on a host. Signals reach the process itself, and not `nsenter`, which only waits for it.

    What it prints goes to a file without a name, unless the options say otherwise; `printed` has it so far.
    """

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process, by `close`
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": self._output, "stderr": subprocess.STDOUT}
        super().__init__(words, text=True, start_new_session=True, **(streams | options))

    def printed(self) -> str:
        return os.pread(self._output.fileno(), os.fstat(self._output.fileno()).st_size, 0).decode()

    def send_signal(self, sig: int) -> None:
        self.poll()
        if self.returncode is None:
            for process in psutil.Process(self.pid).children() or [psutil.Process(self.pid)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(sig)

    def close(self) -> None:
        """Wait for its end, and close its files."""
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr, self._output):
            if stream is not None:
                stream.close()


class Host:
    """One machine of a network.

    Args:
        network: what it is a part of.
        number: from 1; name and address follow from it.
        multi_homed: its name is 127.0.1.1 to itself, as Debian has it, and it has an interface more, found before the
            one that reaches the others, with an address that all such hosts have.
    """

    def __init__(self, network: Network, number: int, *, multi_homed: bool = False) -> None:
        self.network, self.number, self.multi_homed = network, number, multi_homed
        self.name, self.address = f"host-{number}", f"{PREFIX}{number}"
        self.rate: str | None = None
        self._init: _Init | None = None
        self._started: list[OnHost] = []
        self.boot()

    # --- power ----------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start it, with an empty /tmp."""
        names = {f"{PREFIX}{number}": f"host-{number}" for number in range(1, MOST + 1)}
        if self.multi_homed:
            del names[self.address]
            names["127.0.1.1"] = self.name
        table = "".join(f"{address} {name}\n" for address, name in {"127.0.0.1": "localhost", **names}.items())
        variables = {"NAME": self.name, "NAMES": table, "SHARED": " ".join(self.network.shared)}
        self._init = _Init(_INIT, "--net", "--uts", "--ipc", "--mount", "--propagation=private", **variables)
        self._plug_in()

    def kill(self) -> None:
        """A power cut: the link is gone, and then all processes at once, so that nobody hears of it."""
        if self._init is not None:
            self.cut()
            self._end()

    def revive(self) -> None:
        """The same machine after a power cut: same name and address, and nothing of what it had."""
        self.kill()
        self.boot()
        if self.rate:
            self.shape(self.rate)

    def close(self) -> None:
        """End all of it; for the end of a test."""
        if self._init is not None:
            self._end()
        for process in self._started:
            process.close()
        self._started.clear()

    def _end(self) -> None:
        assert self._init is not None
        # The kernel takes its time with the link of a host that is gone, and its successor has one of the same name.
        self.network.init.ip(f"link delete {self.name}")
        self._init.end()
        self._init = None

    # --- network --------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Take the link away: what is sent is lost, and nobody is told, neither here nor there."""
        self.network.init.ip(f"link set {self.name} down")

    def mend(self) -> None:
        """Give the link back."""
        self.network.init.ip(f"link set {self.name} up")

    def shape(self, rate: str) -> None:
        """Hold the link to a rate in each direction, such as 1gbit or 100mbit.

        The bucket holds what a millisecond brings (and the largest packet at least), so that even a transfer of a
        hundredth of a second goes at that rate.
        """
        self.rate = rate
        burst = max(16_000, int(_bits_per_s(rate) / 8 / 1000))
        for init, interface in self._ends():
            tbf = ("tbf", "rate", rate, "burst", f"{burst}b", "latency", "50ms")
            init.run("tc", "qdisc", "replace", "dev", interface, "root", *tbf)

    def unshape(self) -> None:
        """Let the link be as fast as it is."""
        self.rate = None
        for init, interface in self._ends():
            init.run("tc", "qdisc", "del", "dev", interface, "root")

    def _ends(self) -> tuple[tuple[_Init, str], tuple[_Init, str]]:
        """Both ends of the link: what goes out is queued at each."""
        return (self.init, "eth0"), (self.network.init, self.name)

    def _plug_in(self) -> None:
        aux = ("link add aux0 type bridge", f"address add {AUX_ADDRESS}/16 dev aux0", "link set aux0 up")
        peer = f"peer name {self.name} netns {self.network.init.pid}"
        others = {*range(1, MOST + 1)} - {self.number}
        self.init.ip(
            "link set lo up",
            *(aux if self.multi_homed else ()),
            f"link add eth0 address {_mac(self.number)} type veth {peer}",
            f"address add {self.address}/24 dev eth0",
            "link set eth0 up",
            # Nobody is asked for, so who is gone is not missed: as behind a router, what is sent to it is lost, and
            # never "no route to host".
            *(f"neighbour add {PREFIX}{other} lladdr {_mac(other)} dev eth0 nud permanent" for other in others),
        )
        self.network.init.ip(f"link set {self.name} master switch up")

    # --- processes ------------------------------------------------------------------------------------------------

    @property
    def init(self) -> _Init:
        if self._init is None:
            raise HostsError(f"{self.name} has no power; revive() it first.")
        return self._init

    def processes(self) -> list[psutil.Process]:
        """All that run on it, without init."""
        return [one for one in _within("pid", self.init.pid) if one.pid != self.init.pid]

    def start(
        self, words: Sequence[str], *, cwd: Path | str = "/tmp", env: Mapping[str, str] | None = None, **options: Any
    ) -> OnHost:
        """Start a command on this host; `options` go to Popen."""
        inside = ["env", f"--chdir={cwd}", *map(str, words)]
        process = OnHost(self.init.entered("--all", inside), env=self.environment(env), **options)
        self._started.append(process)
        return process

    def run(
        self,
        words: Sequence[str],
        *,
        cwd: Path | str = "/tmp",
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host to its end."""
        process = self.start(words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        if check and process.returncode:
            raise HostsError(f"{self.name}: {shlex.join(words)} ended with {process.returncode}:\n{out}\n{err}")
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def python(self, script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a few lines of Python on this host to their end."""
        return self.run([sys.executable, "-c", script, *arguments], **options)

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The test's, without what would lead elsewhere; home and cache are the host's own."""
        led = ("RAY_", "DMLS_RAY_", "TMPDIR", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(led)}
        path = f"{Path(sys.executable).parent}:{kept.get('PATH', os.defpath)}"
        own = {"PATH": path, "HOME": "/tmp/home", "DMLS_RAY_CACHE": "/tmp/cache"}
        return kept | own | dict(more or {})

    # --- Ray ------------------------------------------------------------------------------------------------------

    def ray_start_head(self, *flags: str, num_cpus: int = 1, env: Mapping[str, str] | None = None) -> str:
        """`ray start --head` on this host; returns the cluster's address. LOST_SOON is for its `env`."""
        self._ray_start("--head", f"--port={RAY_PORT}", "--include-dashboard=false", *flags, num_cpus=num_cpus, env=env)
        return f"{self.address}:{RAY_PORT}"

    def ray_join(self, address: str, *flags: str, num_cpus: int = 1, env: Mapping[str, str] | None = None) -> None:
        """`ray start` on this host, as part of the cluster at an address."""
        self._ray_start(f"--address={address}", *flags, num_cpus=num_cpus, env=env)

    def stop_ray(self, within_s: float = 5) -> None:
        """End Ray on this host in an orderly way, and in the order of `ray stop`, which would look for all it can see.

        The raylet goes first, so that its node is said to have left, and the head's server last. What has not ended
        in time is killed, as there.
        """
        found = [one for one in self.processes() if _is_of_ray(one)]
        first, last = ([one for one in found if one.name() == name] for name in ("raylet", "gcs_server"))
        for some in (first, [one for one in found if one not in last], last):
            for process in some:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
            _, alive = psutil.wait_procs(some, timeout=within_s)
            for process in alive:
                process.kill()
            psutil.wait_procs(alive)

    def _ray_start(self, *flags: str, num_cpus: int, env: Mapping[str, str] | None) -> None:
        own = (f"--node-ip-address={self.address}", f"--num-cpus={num_cpus}", "--disable-usage-stats")
        store = f"--object-store-memory={_OBJECT_STORE_BYTES}"
        self.run(["ray", "start", *flags, *own, store], env=env, check=True)


class Network:
    """Hosts and the switch between them; ends all of it when it is left.

    Args:
        shared: folders that all hosts see. Only those below /tmp need to be told; the rest of the disk is shared.
    """

    def __init__(self, shared: Iterable[Path] = ()) -> None:
        folders = {Path(folder).resolve() for folder in shared}
        tmp = Path("/tmp").resolve()
        self.shared = sorted(str(folder.relative_to(tmp)) for folder in folders if folder.is_relative_to(tmp))
        self.hosts: list[Host] = []
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if os.geteuid() != 0 or missing:
            raise HostsError(f"needs {', '.join(missing)}" if missing else "needs root")
        self.init = _Init("echo ready; exec cat >/dev/null", "--net")
        try:
            self.init.ip("link add switch type bridge", "link set switch up")
        except BaseException:
            self.close()
            raise

    def add(self, count: int = 1, *, multi_homed: bool = False) -> list[Host]:
        """So many hosts more; returns them."""
        for _ in range(count):
            self.hosts.append(Host(self, len(self.hosts) + 1, multi_homed=multi_homed))
        return self.hosts[-count:]

    def cluster(self, *num_cpus: int, env: Mapping[str, str] | None = None) -> str:
        """Start Ray on the first hosts, with so many CPUs each, the first as the head; returns its address."""
        head, *others = self.hosts[: len(num_cpus)]
        address = head.ray_start_head(num_cpus=num_cpus[0], env=env)
        for host, cpus in zip(others, num_cpus[1:], strict=True):
            host.ray_join(address, num_cpus=cpus, env=env)
        return address

    def close(self) -> None:
        """End all of it."""
        for host in self.hosts:
            host.close()
        self.init.end()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Init:
    """The first process of new namespaces, which hold as long as it runs."""

    def __init__(self, script: str, *namespaces: str, **variables: str) -> None:
        words = ["unshare", *namespaces, "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._unshare = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | variables,
            start_new_session=True,
        )
        assert self._unshare.stdout is not None
        try:
            told = self._unshare.stdout.readline()
            if told != b"ready\n":
                self._unshare.wait()
                size = os.fstat(self._log.fileno()).st_size
                raise HostsError(f"unshare failed: {os.pread(self._log.fileno(), size, 0).decode().strip()}")
            (child,) = psutil.Process(self._unshare.pid).children()
            self.pid = child.pid
        except BaseException:
            self.end()
            raise

    def entered(self, which: str, words: Sequence[str]) -> list[str]:
        """The words of a command that runs in these namespaces: --all of them, or --net alone."""
        return ["nsenter", f"--target={self.pid}", which, "--", *words]

    def run(self, *words: str, told: str = "") -> None:
        """Run a command of the network's, with the machine's own files."""
        words_there = self.entered("--net", words)
        done = subprocess.run(words_there, input=told, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HostsError(f"{shlex.join(words)} ended with {done.returncode}: {done.stderr.strip()}\n{told}")

    def ip(self, *lines: str) -> None:
        """Run commands of `ip`."""
        self.run("ip", "-batch", "-", told="".join(f"{line}\n" for line in lines))

    def end(self) -> None:
        """End every process in it, and wait until none is left."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._unshare.pid).children():
                process.kill()
        assert self._unshare.stdin is not None
        assert self._unshare.stdout is not None
        # `unshare` waits for init, and the kernel lets init go when all others are gone.
        self._unshare.stdin.close()
        self._unshare.wait()
        self._unshare.stdout.close()
        self._log.close()


def _mac(number: int) -> str:
    return f"02:00:00:00:77:{number:02x}"


def _bits_per_s(rate: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(k|m|g)bit", rate)
    if found is None:
        raise ValueError(f"rate={rate} is not of the form 100mbit, with k, m or g.")
    return float(found[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[found[2]]


def _within(kind: str, pid: int) -> Iterator[psutil.Process]:
    """The processes that are in the namespace of a kind in which `pid` is."""
    namespace = os.readlink(f"/proc/{pid}/ns/{kind}")
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if os.readlink(f"/proc/{process.pid}/ns/{kind}") == namespace:
                yield process


def _is_of_ray(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        words = process.cmdline()
        return bool(words) and (words[0].startswith("ray::") or any("/site-packages/ray/" in word for word in words))
    return False


def install_folders() -> list[Path]:
    """Where Python and its packages are."""
    return [Path(sys.prefix), Path(sys.base_prefix)]
