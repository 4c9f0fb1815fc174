"""`Launcher`: how the ranks of one run are started on this machine; and `JobFolder`, by which they get their job.

In the folder of a run, the driver writes the job; rank 0 appends events, one JSON object a line; each rank leaves its
result as JSON. Only the job is a pickle: the driver, which is trusted, writes it into a folder that no other user can
enter.

A launcher is one module of this package, named like the launcher, that assigns an instance to `LAUNCHER`; its name is a
choice of `LauncherName`. The driver imports it, so it imports PyTorch inside functions only.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.codec import encode_json
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, Progress, RankEvent, RankResult
from dmls_ray.training.rank import ArtifactOptions, Emit, RankInfo, TrainFunction, limit_progress, rank_of_run
from dmls_ray.util.files import atomic_write_text
from dmls_ray.util.importing import import_function

if TYPE_CHECKING:
    from torch.distributed import Store


@dataclass(frozen=True)
class Rendezvous:
    """Where a process that a launcher has started finds the other ranks."""

    rank: int
    store: Store | None
    """Key-value store that all ranks of the run reach; None at world size 1."""


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

    def run(self, folder: JobFolder, job: LaunchedJob) -> None:
        """Run the part of this process, and leave its result in the folder; by default, it is one rank."""
        run_launched_rank(folder, job, lambda: self.rendezvous(job.config))


def run_launched_rank(folder: JobFolder, job: LaunchedJob, meet: Callable[[], Rendezvous]) -> None:
    """Run the part of one rank in this new process.

    Args:
        folder: where events and the result go.
        job: the run.
        meet: joins the other ranks.
    """
    from torch.distributed import PrefixStore

    from dmls_ray.training.error_to_outcome import failure, run_guarded
    from dmls_ray.training.process import discard_first_run, process_group, wait_for_ranks

    rank, result = RankInfo(), None
    try:
        meeting = meet()
        rank = rank_here(job, meeting)
        train = import_function(job.train, flag="train") if isinstance(job.train, str) else job.train
        store = PrefixStore("run", meeting.store) if meeting.store is not None else None
        # The process is new, so it does a discarded run first, as the ranks of a worker group do.
        discarded_s = discard_first_run(rank.device)
        if store is not None:
            wait_for_ranks(store, rank.world_size)
        rank.clock.start(discarded_s)
        with folder.events(rank.rank) as emit, process_group(rank, store):
            returned = run_guarded(train, job.config, rank, emit)
            folder.write_result(returned)
            result = returned
    except Exception as error:  # noqa: BLE001 - a group that cannot be made is a result like any other
        # One that cannot be unmade takes no result away: the first of a rank counts, as under Ray.
        if result is None:
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


def rank_here(job: LaunchedJob, meeting: Rendezvous) -> RankInfo:
    """A rank of a run on this machine, on the GPU of its own number where it trains on GPUs."""
    import torch
    from torch.distributed import TCPStore

    gpus = torch.cuda.device_count()
    store = meeting.store
    return rank_of_run(
        meeting.rank,
        job.config,
        device=job.config.device_for(gpus),
        gpu=f"cuda:{meeting.rank}",
        backend=job.config.backend_for(gpus),
        store_address=(store.host, store.port) if isinstance(store, TCPStore) else None,
        machine=socket.gethostname(),
        identity=job.identity,
        artifacts=job.artifacts,
    )


@dataclass(frozen=True)
class LaunchedJob:
    """What the processes of a launched run are to do."""

    config: RuntimeConfig
    train: str | TrainFunction
    """The training function, or its `module:function`."""
    identity: Identity
    """The code and the data of the run."""
    artifacts: ArtifactOptions | None
    module_path: Sequence[str]
    """`module_path` of the driver."""


class JobFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._job_file = path / "job.pickle"
        self.log_file = path / "log.txt"
        self._events_file = path / "events.jsonl"
        self._events_read = 0

    def write_job(self, job: LaunchedJob) -> None:
        """Write what the processes are to do."""
        self._job_file.write_bytes(pickle.dumps(job))

    def read_job(self) -> LaunchedJob:
        """What the processes are to do."""
        job: LaunchedJob = pickle.loads(self._job_file.read_bytes())
        return job

    @contextlib.contextmanager
    def events(self, rank: int) -> Iterator[Emit]:
        """The `emit` of a rank: rank 0 writes events, other ranks write none."""
        if rank:
            yield lambda event: None
            return
        with open(self._events_file, "ab", buffering=0) as file:

            def write(event: RankEvent) -> None:
                epoch = event.epoch if isinstance(event, EpochEnded) else None
                file.write(encode_json(epoch) + b"\n")

            yield limit_progress(write)

    def pass_on_events(self, emit: Callable[[RankEvent], object]) -> None:
        """Emit the events that were written completely since the last call."""
        if not self._events_file.exists():
            return
        with open(self._events_file, "rb") as file:
            file.seek(self._events_read)
            complete, newline, _ = file.read().rpartition(b"\n")
        self._events_read += len(complete) + len(newline)
        for line in complete.splitlines():
            epoch = msgspec.json.decode(line, type=EpochRecord | None)
            emit(Progress() if epoch is None else EpochEnded(epoch=epoch))

    def write_result(self, result: RankResult) -> None:
        """Leave the result of a rank."""
        atomic_write_text(self._result_file(result.rank), encode_json(result).decode())

    def read_result(self, rank: int) -> RankResult | None:
        """The result of a rank; None if it left none."""
        file = self._result_file(rank)
        if not file.exists():
            return None
        return msgspec.json.decode(file.read_bytes(), type=RankResult)

    def _result_file(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.json"
