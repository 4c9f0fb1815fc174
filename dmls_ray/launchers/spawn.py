"""Launcher `spawn`: torch.multiprocessing's way, one fresh process per rank on this machine."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.base import Launcher, begin_run, rank_info
from dmls_ray.launchers.job_folder import JobFolder, LaunchedJob
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankEvent, RankResult
from dmls_ray.training.rank import ArtifactOptions, Emit, RankInfo, TrainFunction

_HOST = "127.0.0.1"

_LOOK_S = 1.0
"""Interval in which the ends of processes are looked for, whose connections may stay open."""

_END_TIMEOUT_S = 10.0
"""How long a rank without further work may take to end; then it is killed."""


def run_spawned(
    config: RuntimeConfig,
    *,
    train: TrainFunction | None = None,
    identity: Identity | None = None,
    artifacts: ArtifactOptions | None = None,
    emit: Emit = lambda event: None,
) -> list[RankResult]:
    """Run a configuration in fresh processes, one per rank; returns their results, in the order of ranks.

    Args:
        config: the configuration.
        train: the training function; it must be importable by its name.
        identity: the code and the data of the run.
        artifacts: files that the run leaves next to its result.
        emit: takes rank 0's events.
    """
    from dmls_ray.training.process import store_at
    from dmls_ray.workloads.registry import default_entrypoint

    train = train or default_entrypoint()
    context = multiprocessing.get_context("spawn")
    store = store_at(_HOST)
    address = (_HOST, store.port)
    ranks = [
        rank_info(config, number, identity=identity, artifacts=artifacts, store_address=address)
        for number in range(config.world_size)
    ]
    processes: list[BaseProcess] = []
    waiting: dict[Any, tuple[RankInfo, BaseProcess]] = {}
    try:
        for rank in ranks:
            here, there = context.Pipe(duplex=False)
            # Not daemons, which may have no children: a data loader has some.
            process = context.Process(target=_work, args=(config, rank, train, there))
            process.start()
            # Our copy must go, or the end of the rank's would not be seen.
            there.close()
            processes.append(process)
            waiting[here] = rank, process
        return _follow(waiting, emit)
    finally:
        for started in processes:
            if started.is_alive():  # only where this one was interrupted
                started.terminate()
            started.join(_END_TIMEOUT_S)
            started.kill()  # it is stopped, or ignores the signal
            started.join(_END_TIMEOUT_S)


def _follow(waiting: dict[Any, tuple[RankInfo, BaseProcess]], emit: Emit) -> list[RankResult]:
    """Pass events on until every rank has sent its result or ended without one."""
    results: dict[int, RankResult] = {}
    while waiting:
        ready = multiprocessing.connection.wait(list(waiting), _LOOK_S)
        for here, (rank, process) in list(waiting.items()):
            # A process that a rank has forked keeps the connection open when the rank has ended.
            if here not in ready and process.exitcode is None:
                continue
            try:
                message: RankResult | RankEvent = here.recv() if here.poll() else _died(rank, process)
            except (EOFError, OSError):  # it was killed, maybe in the middle of a message
                message = _died(rank, process)
            if not isinstance(message, RankResult):
                emit(message)
                continue
            results[rank.rank] = message
            del waiting[here]
    return [results[number] for number in sorted(results)]


def _work(config: RuntimeConfig, rank: RankInfo, train: TrainFunction, parent: Connection) -> None:
    import torch.distributed as dist

    from dmls_ray.training.error_to_outcome import failure, run_guarded
    from dmls_ray.training.process import end_with_parent, process_group

    end_with_parent()
    emit: Emit = parent.send if rank.rank == 0 else lambda event: None
    try:
        store = dist.TCPStore(*rank.store_address, is_master=False) if rank.store_address else None
        rank = begin_run(rank, store)
        with process_group(rank, store):
            result = run_guarded(train, config, rank, emit)
    except Exception as error:  # noqa: BLE001 - a group that cannot be made or unmade is a result like any other
        result = failure(error, rank)
    parent.send(result)


def _died(rank: RankInfo, process: BaseProcess) -> RankResult:
    process.join()
    return RankResult(
        rank=rank.rank,
        machine=rank.machine,
        device=rank.device,
        outcome=Outcome.KILLED,
        reason=f"rank {rank.rank} ended with exit code {process.exitcode}",
    )


class Spawn(Launcher):
    """Starts one interpreter, which spawns the ranks."""

    def run(self, folder: JobFolder, job: LaunchedJob, *, train: TrainFunction) -> None:
        with folder.events(0) as emit:
            for result in run_spawned(
                job.config, train=train, identity=job.identity, artifacts=job.artifacts, emit=emit
            ):
                folder.write_result(result)


LAUNCHER = Spawn()
