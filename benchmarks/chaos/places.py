"""Places where a scenario is played: virtual machines on this one, with an init process, a /tmp and a network.

The machines are those of the tests (tests/multihost/hosts.py). Nothing that is mounted, killed or left there reaches
this machine, and all of it ends with this process.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil

from benchmarks.chaos.command import Command, Sweep
from benchmarks.chaos.memory_cgroup import MemoryCgroup
from tests.multihost.hosts import LOST_SOON, Host, HostsError, Network, install_folders

PROJECT = Path(__file__).resolve().parents[2]

_RAY_OF_A_SWEEP = re.compile(r"ray::(RayTrainWorker|TrainController|RunTrainable|Broker|SynchronizationActor)|/sweeps/")


class Place:
    """One machine, on which the sweep starts Ray; also the base of the other places.

    Args:
        folder: empty folder that all machines share.
        sweep: what runs here.
    """

    weight = 4
    """How often a scenario is here, compared with others."""
    run_costs = 1
    """How many runs of the plain place a run takes as long as."""
    sizes: tuple[int, ...] = (1, 2)
    """World sizes of the runs here."""

    def __init__(self, folder: Path, sweep: Sweep) -> None:
        self.folder, self.sweep = folder, sweep
        self.network = Network([folder, PROJECT, *install_folders()])
        try:
            self.host = self.network.add()[0]
            self._prepare()
        except BaseException:
            self.close()
            raise
        self._present = {process.pid for process in self._all_processes()}

    def close(self) -> None:
        """End everything."""
        self.network.close()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self) -> None:
        """Make what the sweep needs here."""

    @property
    def out(self) -> str:
        """The results folder."""
        return str(self.folder / "out")

    @property
    def flags(self) -> list[str]:
        """The flags that depend on the place."""
        return ["--world-size", "1", "2", "--oversubscribe", "--address", "local"]

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the command."""
        return {"PYTHONPATH": str(PROJECT)}

    def start(self) -> Command:
        """Give the command."""
        words = [sys.executable, str(PROJECT / "sweeps" / "grid.py"), *self.sweep.flags, *self.flags, "--out", self.out]
        return Command(
            self.host.start(self._wrapped(words), cwd=self.folder, env=self.environment, stdout=subprocess.PIPE)
        )

    def _wrapped(self, words: list[str]) -> list[str]:
        return words

    def lines(self) -> list[bytes]:
        """Each record that the results folder contains."""
        path = Path(self.out) / "runs.jsonl"
        return path.read_bytes().splitlines() if path.exists() else []

    # --- processes --------------------------------------------------------------------------------------------

    def _all_processes(self) -> list[psutil.Process]:
        return self.host.processes()

    def processes(self) -> list[tuple[psutil.Process, list[str]]]:
        """The processes of the sweep, with their words."""
        found = []
        for process in self._all_processes():
            if process.pid in self._present:
                continue
            try:
                words = process.cmdline() or [process.name()]
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append((process, words))
            except psutil.NoSuchProcess:
                continue
        return found

    def left(self) -> list[str]:
        """What still runs of a sweep that has ended."""
        return [" ".join(words)[:80] for _, words in self.processes()]

    def left_in_tmp(self) -> list[str]:
        """The temporary folders of a sweep that has ended."""
        names = self.host.run(["ls", "/tmp"], check=True).stdout.split()
        return [name for name in names if name.startswith(("dmls_ray", "dmls-ray"))]


class Launched(Place):
    """The ranks of each run are started by torchrun."""

    weight = 1
    run_costs = 5

    @property
    def flags(self) -> list[str]:
        """Likewise, with the launcher."""
        return [*super().flags, "--launcher", "torchrun"]


class Disk(Place):
    """The results folder is on a small disk."""

    weight = 2
    SIZE = "32m"

    def _prepare(self) -> None:
        self.host.run(["mkdir", "/tmp/disk"], check=True)
        self.host.run(["mount", "-t", "tmpfs", "-o", f"size={self.SIZE}", "disk", "/tmp/disk"], check=True)

    @property
    def out(self) -> str:
        """On that disk."""
        return "/tmp/disk/out"

    def lines(self) -> list[bytes]:
        """Likewise, copied from that disk."""
        copy = self.folder / "copy.jsonl"
        self.host.run(["sh", "-c", f"cp {self.out}/runs.jsonl {copy} 2>/dev/null || : >{copy}"], check=True)
        return copy.read_bytes().splitlines()


_LINES_OF_STORE = """
import sys
from dmls_ray.storage.object_store import ObjectStore
store = ObjectStore(sys.argv[1])
names = [name for name in store.list(deep=True) if name.endswith((".json", ".jsonl"))]
lines = {line for content in store.get_all(names).values() for line in content.splitlines() if b'"run_id":' in line}
open(sys.argv[2], "wb").write(b"\\n".join(sorted(lines)))
"""
_WAIT_AND_PUT = """
import sys, time, urllib.request
until = time.monotonic() + 60
while True:
    try:
        urllib.request.urlopen(urllib.request.Request(sys.argv[1], data=b"", method="PUT"), timeout=20).close()
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.1)
"""


class Store(Place):
    """The results go to an object store, through a server that can fail."""

    weight = 2
    PORT, PROXY_PORT = 5000, 5001

    def _prepare(self) -> None:
        self.mode_file = self.folder / "mode"
        self.mode("pass")
        moto = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.PORT)]
        proxy = [sys.executable, "-m", "benchmarks.chaos.store_proxy", str(self.PROXY_PORT), str(self.PORT)]
        self.host.start(moto)
        self.host.start([*proxy, str(self.mode_file)], env={"PYTHONPATH": str(PROJECT)})
        self.host.python(_WAIT_AND_PUT, f"http://127.0.0.1:{self.PROXY_PORT}/results", check=True)

    def mode(self, mode: str) -> None:
        """Set what the server does with requests: see `store_proxy`."""
        (self.folder / "next_mode").write_text(mode)
        (self.folder / "next_mode").replace(self.mode_file)

    @property
    def out(self) -> str:
        """The URI."""
        return "s3://results/sweep"

    @property
    def environment(self) -> dict[str, str]:
        """Likewise, with the server and its credentials."""
        return {
            **super().environment,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.PROXY_PORT}",
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def lines(self) -> list[bytes]:
        """Each record of all objects. While a sweep moves records, one may be in two objects, and counts once."""
        copy = self.folder / "copy.jsonl"
        direct = {**self.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.PORT}"}
        self.host.python(_LINES_OF_STORE, self.out, str(copy), env=direct, check=True)
        return copy.read_bytes().splitlines()


class Memory(Place):
    """The sweep is in a cgroup, whose memory can become short."""

    weight = 1

    def _prepare(self) -> None:
        self.cgroup = MemoryCgroup()

    def _wrapped(self, words: list[str]) -> list[str]:
        return self.cgroup.entered(words)

    def close(self) -> None:
        """Likewise, with the cgroup."""
        super().close()
        if hasattr(self, "cgroup"):
            self.cgroup.remove()


class Machines(Place):
    """Two machines with a cluster, which the sweep joins. Some runs use one machine, some both."""

    weight = 2
    run_costs = 2

    def _prepare(self) -> None:
        self.second: Host = self.network.add()[0]
        # A machine that is only busy, or whose link was cut for seconds, is not given up.
        patient = {**LOST_SOON, "RAY_health_check_failure_threshold": "6"}
        self.cluster = {"PYTHONPATH": str(PROJECT), **patient}
        self.address = self.network.cluster(1, 1, env=self.cluster)

    @property
    def flags(self) -> list[str]:
        """Likewise, with the machines."""
        return ["--machines", "1", "2", "--ranks-per-machine", "1", "--address", "auto"]

    def _all_processes(self) -> list[psutil.Process]:
        found = self.host.processes()
        try:
            return [*found, *self.second.processes()]
        except HostsError:
            return found  # it has no power

    def left(self) -> list[str]:
        """Likewise. Ray itself, and workers that it keeps in reserve, belong to the cluster."""
        return [title for title in super().left() if _RAY_OF_A_SWEEP.search(title)]

    def start(self) -> Command:
        """Likewise; whoever gives the command sees to it that both machines are there."""
        if not any(process.name() == "raylet" for process in self.second.processes()):
            self.rejoin()
        return super().start()

    def rejoin(self) -> None:
        """Start the second machine again."""
        self.second.revive()
        self.second.ray_join(self.address, num_cpus=1, env=self.cluster)


class Lanes(Machines):
    """Two machines with a cluster, each a lane."""

    sizes = (1,)

    @property
    def flags(self) -> list[str]:
        """Likewise, with one rank in each run, so that both machines measure at the same time."""
        return ["--world-size", "1", "--lanes", "auto", "--address", "auto"]


PLACES: dict[str, type[Place]] = {
    "machine": Place,
    "torchrun": Launched,
    "disk": Disk,
    "store": Store,
    "memory": Memory,
    "machines": Machines,
    "lanes": Lanes,
}


def empty_folder(parent: Path, name: str) -> Path:
    """A new folder in place of an earlier one."""
    shutil.rmtree(parent / name, ignore_errors=True)
    (parent / name).mkdir(parents=True)
    os.chmod(parent / name, 0o777)
    return parent / name
