"""Launcher `torchrun`: PyTorch's elastic agent starts one interpreter per rank."""

from __future__ import annotations

import os
import sys

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.base import Launcher, Rendezvous


class Torchrun(Launcher):
    """Starts `python -m torch.distributed.run`."""

    def command(self, config: RuntimeConfig, program: list[str]) -> list[str]:
        agent = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        return [*agent, "--nproc-per-node", str(config.world_size), *program]

    def rendezvous(self, config: RuntimeConfig) -> Rendezvous:
        from torch.distributed import TCPStore

        # torchrun's agent serves a store.
        store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
        return Rendezvous(int(os.environ["RANK"]), store)


LAUNCHER = Torchrun()
