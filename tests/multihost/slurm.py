"""A real Slurm on the hosts of a network: a controller on the last host, a node on each of the others.

It needs Slurm and munge (`apt-get install --no-install-recommends slurm-wlm munge`), and neither systemd nor cgroups
nor a database. Its state is in each host's /tmp and ends with the host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.multihost.hosts import Host, HostsError, Network, OnHost

TOOLS = ("slurmctld", "slurmd", "srun", "munged")

# Steps are found by the parents of their processes, since there are no cgroups. A node may say that it has more
# processors than there are. A node that does not answer for 5 s is down.
CONF = """
ClusterName=test
SlurmctldHost={controller.name}({controller.address})
SlurmUser=root
AuthInfo=socket=/tmp/munge.socket
StateSaveLocation=/tmp/slurmctld
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmctldLogFile=/tmp/slurmctld.log
SlurmdLogFile=/tmp/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdTimeout=5
ReturnToService=2
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """Slurm on new hosts of a network.

    Args:
        network: the network, to which the hosts are added.
        folder: folder that all hosts share, for the configuration.
        cpus: number of processors that each node says it has; one node for each number.
        gpus: number of GPUs that each node says it has; no driver belongs to them.
    """

    def __init__(self, network: Network, folder: Path, *, cpus: Sequence[int], gpus: int = 0) -> None:
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            raise HostsError(f"needs {', '.join(missing)} of Slurm and munge")
        *self.nodes, self.controller = network.add(len(cpus) + 1)
        self.folder = folder
        self._key = folder / "munge.key"
        self._key.write_bytes(os.urandom(128))
        self._key.chmod(0o400)

        devices = [folder / f"gpu{number}" for number in range(gpus)]
        for device in devices:
            device.touch()
        gres = [f"Name=gpu File={device}\n" for device in devices]
        (folder / "gres.conf").write_text("".join(gres))

        lines = [
            f"NodeName={node.name} NodeAddr={node.address} CPUs={count} RealMemory=6000 Gres=gpu:{gpus}\n"
            for node, count in zip(self.nodes, cpus, strict=True)
        ]
        self.conf = folder / "slurm.conf"
        self.conf.write_text(CONF.format(controller=self.controller) + "".join(lines))

        self._munge(self.controller)
        self.controller.run(["slurmctld", "-f", self.conf], check=True)
        for node in self.nodes:
            self.start_node(node)
        self.wait_for_nodes()

    def start_node(self, node: Host) -> None:
        """Start the daemons of a node."""
        self._munge(node)
        node.run(["slurmd", "-f", self.conf, "-N", node.name], check=True)

    def wait_for_nodes(self) -> None:
        """Wait until all nodes are idle."""
        until = time.monotonic() + 60
        while self.query("sinfo", "--noheader", "--Node", "--format=%t").split() != ["idle"] * len(self.nodes):
            if time.monotonic() > until:
                raise HostsError(f"not all nodes are idle:\n{self.query('sinfo', '-N', '-l')}")
            time.sleep(0.2)

    # --- commands ---------------------------------------------------------------------------------------------------

    def start(self, words: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None) -> OnHost:
        """Start a command of Slurm on the controller, from where jobs are submitted."""
        return self.controller.start([str(word) for word in words], cwd=cwd, env=self._environment(env))

    def run(
        self, *words: str | Path, cwd: Path | str = "/tmp", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm on the controller."""
        return self.controller.run([str(word) for word in words], cwd=cwd, env=self._environment(env))

    def query(self, *words: str | Path) -> str:
        """Return what a command of Slurm prints."""
        return self.run(*words).stdout

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {"SLURM_CONF": str(self.conf), **(more or {})}

    def _munge(self, host: Host) -> None:
        files = ("--socket=/tmp/munge.socket", "--pid-file=/tmp/munge.pid", "--seed-file=/tmp/munge.seed")
        log = "--log-file=/tmp/munge.log"
        host.run(["munged", "--force", f"--key-file={self._key}", *files, log], check=True)
