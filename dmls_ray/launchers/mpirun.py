"""Launcher `mpirun`: MPI's process manager starts one interpreter per rank."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.base import Launcher, Rendezvous
from dmls_ray.util.errors import ClusterError

_HOST = "127.0.0.1"


class Mpirun(Launcher):
    """Starts `mpiexec`."""

    def infeasible_reason(self, config: RuntimeConfig) -> str:
        if mpiexec() is None or importlib.util.find_spec("mpi4py") is None:
            return "launcher=mpirun needs mpi4py and an mpiexec: pip install 'dmls_ray[mpi]', or use launcher torchrun."
        return ""

    def command(self, config: RuntimeConfig, program: list[str]) -> list[str]:
        executable = mpiexec()
        assert executable is not None
        # With `-m mpi4py` an exception on one rank ends all ranks; without it, the others wait forever.
        return [executable, "-n", str(config.world_size), sys.executable, "-m", "mpi4py", *program]

    def rendezvous(self, config: RuntimeConfig) -> Rendezvous:
        from torch.distributed import TCPStore

        from dmls_ray.training.mpi_backend import world
        from dmls_ray.training.process import store_at

        comm = world()
        if comm.size != config.world_size:
            raise ClusterError(
                f"mpirun has made a world of {comm.size} ranks and not of {config.world_size}: it belongs to another "
                "MPI than mpi4py. Use the mpiexec of pip install 'dmls_ray[mpi]', or an mpi4py built for yours."
            )
        store = store_at(_HOST) if comm.rank == 0 else None
        port = comm.bcast(store.port if store else None)
        return Rendezvous(comm.rank, store or TCPStore(_HOST, port, is_master=False))


def mpiexec() -> str | None:
    """The mpiexec next to this Python, which belongs to mpi4py's MPI; else the one on the PATH."""
    installed = Path(sys.executable).with_name("mpiexec")
    return str(installed) if installed.exists() else shutil.which("mpiexec") or shutil.which("mpirun")


LAUNCHER = Mpirun()
