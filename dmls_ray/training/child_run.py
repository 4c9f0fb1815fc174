"""Runs of a rank: in its process, or, of user code, each in a child process.

What user code leaves behind in its process ends with the process, and so does a hang or a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection

import torch.distributed as dist

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.run_events import EpochEnded, RankEvent, RankResult
from dmls_ray.training.error_to_outcome import failure, run_guarded
from dmls_ray.training.link_probe import measure_link
from dmls_ray.training.process import process_group
from dmls_ray.training.rank import Emit, RankInfo, limit_progress
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.util.importing import import_function

_END_TIMEOUT_S = 10.0
"""How long a process may take to end after its result."""


def run_rank(
    train: str,
    config: RuntimeConfig,
    rank: RankInfo,
    store: dist.Store | None,
    emit: Emit,
    finish: Callable[[RankResult], None],
) -> None:
    """Run the part of one rank in this process.

    Args:
        train: `module:function` of the entry point.
        config: the configuration of the run.
        rank: this rank.
        store: key-value store of this run only; None at world size 1.
        emit: takes the epochs of the rank, and a sign of progress now and then.
        finish: takes its result, before the process group ends.
    """
    try:
        with process_group(rank, store):
            function = import_function(train, flag="train")
            link, instruments_s = measure_link(rank, rank.machines)
            rank = replace(rank, instruments_s=instruments_s)
            result = run_guarded(function, config, rank, limit_progress(emit))
            if result.run:
                result = replace(result, run={**result.run, **link})
            finish(result)
    except Exception as error:  # noqa: BLE001 - a group that cannot be made or unmade ends this run only
        finish(failure(error, rank))


def store_of_run(rank: RankInfo, name: str, store: dist.Store | None = None) -> dist.Store | None:
    """The key-value store of one run; None at world size 1.

    Args:
        rank: this rank.
        name: of the run; no other run at this address has it.
        store: the store at the rank's address, if this process has it.
    """
    if rank.store_address is None:
        return None
    return dist.PrefixStore(name, store or dist.TCPStore(*rank.store_address, is_master=False))


def run_in_child(
    server: ForkServer,
    train: str,
    config: RuntimeConfig,
    rank: RankInfo,
    name: str,
    emit: Emit,
    finish: Callable[[RankResult], None],
) -> int:
    """Run the part of one rank in a child process; as `run_rank`.

    Args:
        server: starts the process; it is prepared by `preload`.
        train: as the next two and the last two, of `run_rank`.
        config: the configuration of the run.
        rank: this rank.
        name: that of the run in the store.
        emit: takes the events of the rank.
        finish: takes its result.

    Returns:
        The exit code of the child if it ended without a result, else 0.
    """
    child = server.start(_run_in_child, train, config, rank, name)
    try:
        while not isinstance(message := child.connection.recv(), RankResult):
            goes_on = emit(message)
            if rank.prunable and isinstance(message, EpochEnded):
                child.connection.send(goes_on)
    except (EOFError, OSError):
        return child.wait()
    finish(message)
    child.wait(_END_TIMEOUT_S)
    return 0


def _run_in_child(parent: Connection, train: str, config: RuntimeConfig, rank: RankInfo, name: str) -> None:
    def emit(event: RankEvent) -> bool | None:
        parent.send(event)
        if not rank.prunable or not isinstance(event, EpochEnded):
            return None
        goes_on: bool = parent.recv()
        return goes_on

    run_rank(train, config, rank, store_of_run(rank, name), emit, parent.send)
