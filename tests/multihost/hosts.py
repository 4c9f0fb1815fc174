"""Several hosts on one machine, for tests: each has an address, a name, processes and a /tmp; a switch joins them.

A host is an init process in new namespaces. A `Network` is an init process whose network namespace contains the switch.
Nothing is visible outside of these namespaces: no `ip netns`, no link and no mount of the machine. An init process ends
when its standard input closes, so all hosts end with the process that created them, however that process ends. Two test
runs never see each other. Hosts share the disk of the machine (as a network file system), its processors, its memory
and its kernel.

Links have no latency: the kernel of the development machine has no netem, and `tbf` limits only the rate.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

TOOLS = ("ip", "tc", "unshare", "nsenter", "mount", "env")
PREFIX = "10.77.0."
MAX_HOSTS = 16
"""Largest number of hosts of a network."""

AUX_ADDRESS = "172.17.0.1"
"""Additional address of every multi-homed host, unreachable from other hosts, as of a bridge for containers."""

RAY_PORT = 6379
LOST_SOON = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}
"""Environment of Ray's processes with which the head declares a silent host dead after 7 s.

A busy host has 2 s for each answer. By default a host without power or link is declared dead after 63 s (5 times 10 s
without an answer, and the pauses), and a host whose raylet was killed after 15 s. A host that leaves in an orderly way
is reported at once with both settings.
"""
_OBJECT_STORE_BYTES = 100_000_000

# Each host mounts /tmp (with Ray's sessions and sockets), /dev/shm (with Ray's objects) and the host table. The working
# folder is still the /tmp of the machine: folders below it are shared through it. The last line waits for the end of
# the process that created the host. SIGCHLD is ignored, so the kernel reaps orphaned processes.
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
    """This machine cannot create hosts, or a command that creates them failed."""


class OnHost(subprocess.Popen[str]):
    """Process on a host. Signals reach the process itself and not `nsenter`, which only waits for it.

    The output goes to an unnamed file, unless the options redirect it; `printed` returns the output so far.
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
        """Wait for the end of the process and close its files."""
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr, self._output):
            if stream is not None:
                stream.close()


class Host:
    """One machine of a network.

    Args:
        network: network of the host.
        number: number from 1; determines name and address.
        multi_homed: the host resolves its name to 127.0.1.1, as Debian does. Before the interface that reaches the
            network it has another interface, whose address all multi-homed hosts share.
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
        """Start the host with an empty /tmp."""
        names = {f"{PREFIX}{number}": f"host-{number}" for number in range(1, MAX_HOSTS + 1)}
        if self.multi_homed:
            del names[self.address]
            names["127.0.1.1"] = self.name
        table = "".join(f"{address} {name}\n" for address, name in {"127.0.0.1": "localhost", **names}.items())
        variables = {"NAME": self.name, "NAMES": table, "SHARED": " ".join(self.network.shared)}
        self._init = _Init(_INIT, "--net", "--uts", "--ipc", "--mount", "--propagation=private", **variables)
        self._plug_in()

    def kill(self) -> None:
        """Cut the power: first the link disappears, then all processes at once, so that no message leaves the host."""
        if self._init is not None:
            self.cut()
            self._end()

    def revive(self) -> None:
        """Start the same host after a power cut: same name and address, empty /tmp, no processes."""
        self.kill()
        self.boot()
        if self.rate:
            self.shape(self.rate)

    def close(self) -> None:
        """End all processes of the host, at the end of a test."""
        if self._init is not None:
            self._end()
        for process in self._started:
            process.close()
        self._started.clear()

    def _end(self) -> None:
        # The kernel removes the link of an ended host late, and the next link has the same name.
        self.network.init.ip(f"link delete {self.name}")
        assert self._init is not None
        self._init.end()
        self._init = None

    # --- network --------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Cut the link: packets are lost, and neither end gets an error."""
        self.network.init.ip(f"link set {self.name} down")

    def restore(self) -> None:
        """Restore a link that was cut."""
        self.network.init.ip(f"link set {self.name} up")

    def shape(self, rate: str) -> None:
        """Limit the link to a rate in each direction, such as 1gbit or 100mbit.

        The bucket contains the bytes of one millisecond (at least one packet of the largest size), so that even a
        transfer of ten milliseconds has this rate.
        """
        self.rate = rate
        burst = max(16_000, int(_bits_per_s(rate) / 8 / 1000))
        tbf = ("tbf", "rate", rate, "burst", f"{burst}b", "latency", "50ms")
        # Each end of the link queues what it sends.
        for init, interface in ((self.init, "eth0"), (self.network.init, self.name)):
            init.run("tc", "qdisc", "replace", "dev", interface, "root", *tbf)

    def _plug_in(self) -> None:
        aux = ("link add aux0 type bridge", f"address add {AUX_ADDRESS}/16 dev aux0", "link set aux0 up")
        peer = f"peer name {self.name} netns {self.network.init.pid}"
        neighbours = {*range(1, MAX_HOSTS + 1)} - {self.number}
        self.init.ip(
            "link set lo up",
            *(aux if self.multi_homed else ()),
            f"link add eth0 address {_mac(self.number)} type veth {peer}",
            f"address add {self.address}/24 dev eth0",
            "link set eth0 up",
            # With permanent neighbours no host sends an ARP request. Packets to a dead host are lost, as behind a
            # router, and the sender never gets "no route to host".
            *(f"neighbour add {PREFIX}{number} lladdr {_mac(number)} dev eth0 nud permanent" for number in neighbours),
        )
        self.network.init.ip(f"link set {self.name} master switch up")

    # --- processes ------------------------------------------------------------------------------------------------

    @property
    def init(self) -> _Init:
        if self._init is None:
            raise HostsError(f"{self.name} has no power; revive() it first.")
        return self._init

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the host except init."""
        namespace = os.readlink(f"/proc/{self.init.pid}/ns/pid")
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if os.readlink(f"/proc/{process.pid}/ns/pid") == namespace and process.pid != self.init.pid:
                    found.append(process)
        return found

    def start(
        self, words: Sequence[str], *, cwd: Path | str = "/tmp", env: Mapping[str, str] | None = None, **options: Any
    ) -> OnHost:
        """Start a command on this host; `options` go to Popen."""
        command = ["env", f"--chdir={cwd}", *map(str, words)]
        process = OnHost(self.init.entered("--all", command), env=self.environment(env), **options)
        self._started.append(process)
        return process

    def run(
        self, words: Sequence[str], *, timeout: float = 120, check: bool = False, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on this host to its end; `options` go to `start`."""
        process = self.start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
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
        """Run a Python script on this host to its end."""
        return self.run([sys.executable, "-c", script, *arguments], **options)

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of the test, with a private home and cache.

        Variables of Ray, of paths and of the machine's network interfaces are left out.
        """
        removed = ("RAY_", "DMLS_RAY_", "TMPDIR", "XDG_", "GLOO_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(removed)}
        path = f"{Path(sys.executable).parent}:{kept.get('PATH', os.defpath)}"
        private = {"PATH": path, "HOME": "/tmp/home", "DMLS_RAY_CACHE": "/tmp/cache"}
        return kept | private | dict(more or {})

    # --- Ray ------------------------------------------------------------------------------------------------------

    def ray_start_head(self, *, num_cpus: int = 1, env: Mapping[str, str] | None = None) -> str:
        """Run `ray start --head` on this host; return the address of the cluster. `env` accepts LOST_SOON."""
        self._ray_start("--head", f"--port={RAY_PORT}", "--include-dashboard=false", num_cpus=num_cpus, env=env)
        return f"{self.address}:{RAY_PORT}"

    def ray_join(self, address: str, *, num_cpus: int = 1, env: Mapping[str, str] | None = None) -> None:
        """Run `ray start` on this host, which joins the cluster at an address."""
        self._ray_start(f"--address={address}", num_cpus=num_cpus, env=env)

    def _ray_start(self, *flags: str, num_cpus: int, env: Mapping[str, str] | None) -> None:
        node = (f"--node-ip-address={self.address}", f"--num-cpus={num_cpus}", "--disable-usage-stats")
        store = f"--object-store-memory={_OBJECT_STORE_BYTES}"
        self.run(["ray", "start", *flags, *node, store], env=env, check=True)


class Network:
    """Hosts and the switch between them, as a context manager that ends all of them.

    Args:
        shared: folders that all hosts see. Only folders below /tmp are needed here; the rest of the disk is shared.
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
        """Add hosts to the network; return the new hosts."""
        for _ in range(count):
            self.hosts.append(Host(self, len(self.hosts) + 1, multi_homed=multi_homed))
        return self.hosts[-count:]

    def cluster(self, *num_cpus: int, env: Mapping[str, str] | None = None) -> str:
        """Start Ray on the first hosts, with so many CPUs each, the first as the head; returns its address."""
        head, *workers = self.hosts[: len(num_cpus)]
        address = head.ray_start_head(num_cpus=num_cpus[0], env=env)
        for host, cpus in zip(workers, num_cpus[1:], strict=True):
            host.ray_join(address, num_cpus=cpus, env=env)
        return address

    def close(self) -> None:
        """End all hosts and the switch."""
        for host in self.hosts:
            host.close()
        self.init.end()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Init:
    """First process of new namespaces, which exist as long as this process runs."""

    def __init__(self, script: str, *namespaces: str, **variables: str) -> None:
        words = ["unshare", *namespaces, "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._unshare = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=os.environ | variables,
            start_new_session=True,
        )  # fmt: skip
        try:
            assert self._unshare.stdout is not None
            line = self._unshare.stdout.readline()
            if line != b"ready\n":
                self._unshare.wait()
                size = os.fstat(self._log.fileno()).st_size
                raise HostsError(f"unshare failed: {os.pread(self._log.fileno(), size, 0).decode().strip()}")
            (child,) = psutil.Process(self._unshare.pid).children()
            self.pid = child.pid
        except BaseException:
            self.end()
            raise

    def entered(self, which: str, words: Sequence[str]) -> list[str]:
        """Return a command that runs in these namespaces: in --all of them, or only in --net."""
        return ["nsenter", f"--target={self.pid}", which, "--", *words]

    def run(self, *words: str, stdin: str = "") -> None:
        """Run a command in the network namespace, with the files of the machine."""
        command = self.entered("--net", words)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HostsError(f"{shlex.join(words)} ended with {done.returncode}: {done.stderr.strip()}\n{stdin}")

    def ip(self, *lines: str) -> None:
        """Run commands of `ip`."""
        self.run("ip", "-batch", "-", stdin="".join(f"{line}\n" for line in lines))

    def end(self) -> None:
        """End every process of the namespaces and wait until they have ended."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._unshare.pid).children():
                process.kill()
        # `unshare` waits for init, and the kernel ends init after all other processes of the namespace.
        assert self._unshare.stdin is not None
        assert self._unshare.stdout is not None
        self._unshare.stdin.close()
        self._unshare.wait()
        self._unshare.stdout.close()
        self._log.close()


def _mac(number: int) -> str:
    return f"02:00:00:00:77:{number:02x}"


def _bits_per_s(rate: str) -> float:
    return float(rate[:-4]) * {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[rate[-4:]]


def install_folders() -> list[Path]:
    """Return the folders of Python and its packages."""
    return [Path(sys.prefix), Path(sys.base_prefix)]
