"""`Launcher`: how the ranks of one run are started on this machine, and the launchers by name.

A launcher is one module of this package, named like the launcher, that assigns an instance to `LAUNCHER`; its name is a
choice of `LauncherName`. The driver imports it, so it imports PyTorch inside functions only.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.job_folder import JobFolder, LaunchedJob
from dmls_ray.records.outcome import Outcome
from dmls_ray.training.rank import ArtifactOptions, RankInfo, TrainFunction
from dmls_ray.util.errors import ClusterError

if TYPE_CHECKING:
    from torch.distributed import Store


@dataclass(frozen=True)
class Rendezvous:
    """Where a process that a launcher has started finds the other ranks."""

    rank: int
    world_size: int
    store: Store
    """Key-value store that all ranks of the run reach."""

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the store; None if it is no server."""
        from torch.distributed import TCPStore

        return (self.store.host, self.store.port) if isinstance(self.store, TCPStore) else None


class Launcher:
    """Starts a command for each run. A subclass overrides `command` and `rendezvous`, or `run`."""

    def infeasible_reason(self, config: RuntimeConfig) -> str:
        """Why this launcher cannot be used here, and the way out; empty if it can."""
        return ""

    def command(self, config: RuntimeConfig, program: list[str]) -> list[str]:
        """The command that starts the run.

        Args:
            config: the configuration of the run.
            program: arguments of Python that run `dmls_ray.launchers` in each process.
        """
        return [sys.executable, *program]

    def rendezvous(self, config: RuntimeConfig) -> Rendezvous:
        """Join the other ranks. Called in each process that `command` has started.

        Raises:
            Exception: the ranks cannot meet; the run fails with it.
        """
        raise NotImplementedError

    def run(self, folder: JobFolder, job: LaunchedJob, *, train: TrainFunction) -> None:
        """Run the part of this process, and leave its result in the folder; by default, it is one rank.

        Args:
            folder: where events and results go.
            job: the run.
            train: its training function.
        """
        from torch.distributed import PrefixStore

        from dmls_ray.training.error_to_outcome import failure, run_guarded
        from dmls_ray.training.process import process_group

        rank = RankInfo()
        try:
            meeting = self.rendezvous(job.config)
            rank = replace(rank, rank=meeting.rank)
            info = rank_info(
                job.config, meeting.rank, identity=job.identity, artifacts=job.artifacts, store_address=meeting.address
            )
            store = PrefixStore("run", meeting.store) if meeting.world_size > 1 else None
            info = begin_run(info, store)
            with folder.events(meeting.rank) as emit:
                with process_group(info, store):
                    result = run_guarded(train, job.config, info, emit)
                    folder.write_result(result)
        except Exception as error:  # noqa: BLE001 - a group that cannot be made is a result like any other
            result = failure(error, rank)
            folder.write_result(result)
        if result.outcome is not Outcome.OK and not result.is_symptom:
            # Other ranks may wait for this one in a collective; only the end of its process ends that.
            os._exit(1)


def launcher(name: str) -> Launcher:
    """The launcher of this name; not `ray`, which is the worker group."""
    instance: Launcher = importlib.import_module(f"dmls_ray.launchers.{name}").LAUNCHER
    return instance


def infeasible_reason(config: RuntimeConfig) -> str:
    """Why the configuration's launcher cannot be used here, and the way out; empty if it can."""
    return "" if config.launcher == "ray" else launcher(config.launcher).infeasible_reason(config)


def begin_run(rank: RankInfo, store: Store | None) -> RankInfo:
    """The rank with its clock started, once all ranks of the run are there and have loaded PyTorch.

    The processes of a launched run are new, so each does a discarded run first, as the ranks of a worker group do.

    Args:
        rank: this rank.
        store: the key-value store of the run; None at world size 1.
    """
    from dmls_ray.training.discarded_run import discard_first_run
    from dmls_ray.training.process import wait_for_ranks

    discarded_s = discard_first_run(rank.device)
    if store is not None:
        wait_for_ranks(store, rank.world_size)
    return replace(rank, assigned_at=time.perf_counter() - discarded_s, instruments_s=discarded_s)


def rank_info(
    config: RuntimeConfig,
    rank: int,
    *,
    identity: Identity | None = None,
    artifacts: ArtifactOptions | None = None,
    store_address: tuple[str, int] | None = None,
) -> RankInfo:
    """A rank of a run on this machine, on the GPU of its own number where it trains on GPUs.

    Args:
        config: the configuration of the run.
        rank: number of the rank.
        identity: the code and the data of the run.
        artifacts: files that the run leaves next to its record.
        store_address: host and port of the store where the ranks meet.

    Raises:
        ClusterError: there are fewer GPUs than ranks, or the device or the launcher cannot do what is asked for.
    """
    import torch

    gpus = torch.cuda.device_count()
    device = config.device_for(gpus)
    if device == "cuda" and config.world_size > gpus:
        raise ClusterError(
            f"world_size={config.world_size} needs {config.world_size} GPUs; this machine has {gpus}. "
            "Lower --world-size or pass --device cpu."
        )
    if reason := config.infeasible_reason(device):
        raise ClusterError(reason)
    backend = address = None
    if config.world_size > 1:
        backend, address = config.backend_for(gpus), store_address
    return RankInfo(
        rank=rank,
        world_size=config.world_size,
        device=f"cuda:{rank}" if device == "cuda" else "cpu",
        backend=backend,
        machine=socket.gethostname(),
        store_address=address,
        identity=identity or Identity(),
        artifacts=artifacts,
    )
