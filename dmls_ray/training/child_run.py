"""Runs of a rank: in its process, or, of user code, each in a child process.

What user code leaves behind in its process ends with the process, and so does a hang or a crash. Before a run trains,
the link between its machines is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RankEvent, RankResult
from dmls_ray.training.error_to_outcome import failure, run_guarded
from dmls_ray.training.marks import synchronize
from dmls_ray.training.process import process_group, wait_for_others
from dmls_ray.training.rank import Emit, RankInfo, limit_progress
from dmls_ray.util.fork_server import ForkedProcess, ForkServer
from dmls_ray.util.importing import import_function

_END_TIMEOUT_S = 10.0
"""How long a process may take to end after its result."""
_CLOSED_TIMEOUT_S = 3.0
"""How long it may take after it has closed its connection: a process that ends does that before its GPU is free."""

_SMALL_ROUNDS = 20
_FIRST_BYTES = 64 * 1024
_MOST_BYTES = 16 * 2**20
_LONG_ENOUGH_S = 0.1
"""Duration of the largest message, so that latency, buffers and token buckets have little influence."""


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
        with process_group(rank, store) if config.joins_group else nullcontext():
            function = import_function(train, flag="train")
            link: dict[str, float] = {}
            if config.joins_group:
                with rank.clock.untimed():
                    link = measure_link(rank)
            result = run_guarded(function, config, rank, limit_progress(emit))
            if result.metrics:
                result.run.metrics |= link
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
) -> RankResult | None:
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
        The result of a child that ended without one of its own, or closed its connection and was ended; else None.
    """
    child = server.start(_run_in_child, train, config, rank, name)
    try:
        while not isinstance(message := child.connection.recv(), RankResult):
            goes_on = emit(message)
            if rank.prunable and isinstance(message, EpochEnded):
                child.connection.send(goes_on)
    except (EOFError, OSError):
        return _result_without(child, rank)
    finish(message)
    child.wait(_END_TIMEOUT_S)
    return None


def _result_without(child: ForkedProcess, rank: RankInfo) -> RankResult:
    """The result of a child that sends none."""
    exit_code = child.wait(_CLOSED_TIMEOUT_S)
    outcome, reason = Outcome.KILLED, f"its process ended with exit code {exit_code}"
    if child.was_killed:
        outcome = Outcome.ERROR
        reason = "its process closed its connection, or became another program, and went on where nothing is measured"
    elif exit_code == 0:
        outcome = Outcome.ERROR
        reason = "its process ended with exit code 0 in the middle of the run, as by exit(0) of a library in C"
    return RankResult(rank=rank.rank, machine=rank.machine, device=rank.device, outcome=outcome, reason=reason)


def _run_in_child(parent: Connection, train: str, config: RuntimeConfig, rank: RankInfo, name: str) -> None:
    def emit(event: RankEvent) -> bool | None:
        parent.send(event)
        if not rank.prunable or not isinstance(event, EpochEnded):
            return None
        goes_on: bool = parent.recv()
        return goes_on

    run_rank(train, config, rank, store_of_run(rank, name), emit, parent.send)


def measure_link(rank: RankInfo) -> dict[str, float]:
    """Round trip and bandwidth between the machines of a run; empty on a single machine, and on all ranks but rank 0.

    One rank of each machine takes part, and the others wait. A ring all-reduce among m ranks is 2 (m - 1) messages one
    after the other, of 1/m of the data each (Patarasuk & Yuan, 2009). So a tiny one takes m - 1 round trips. The
    difference between the times of a larger and a smaller one is the time of 2 (m - 1) / m of their difference in
    bytes.

    Args:
        rank: this rank; the default process group has all ranks of the run.

    Returns:
        `link_round_trip_ms`, the median of 20, and `link_mbit_per_s`, in one direction, of the slowest link.
    """
    leaders = [rank.machines.index(machine) for machine in dict.fromkeys(rank.machines)]
    if len(leaders) < 2:
        return {}
    group = dist.new_group(leaders)
    metrics: dict[str, float] = {}
    if rank.rank in leaders:
        try:
            metrics = _link_metrics(group, rank, len(leaders))
        finally:
            dist.destroy_process_group(group)
    wait_for_others(rank)
    return metrics if rank.rank == 0 else {}


def _link_metrics(group: Any, rank: RankInfo, count: int) -> dict[str, float]:
    """The metrics of the link between the ranks of this group, one on each of `count` machines."""
    device = torch.device(rank.device if rank.backend == "nccl" else "cpu")
    small = [_seconds(group, 1, device) for _ in range(_SMALL_ROUNDS)]
    metrics = {"link_round_trip_ms": statistics.median(small) * 1000 / (count - 1)}
    size, seconds = _FIRST_BYTES, _shortest_s(group, _FIRST_BYTES, device)
    while size < _MOST_BYTES and (size == _FIRST_BYTES or seconds <= _LONG_ENOUGH_S):
        size, shorter_s = 2 * size, seconds
        seconds = _shortest_s(group, size, device)
        if seconds > shorter_s:
            megabits = 2 * (count - 1) / count * (size / 2) * 8 / 1e6
            metrics["link_mbit_per_s"] = megabits / (seconds - shorter_s)
    return metrics


def _seconds(group: Any, size: int, device: torch.device) -> float:
    """Duration of an all-reduce of `size` bytes on this rank."""
    values = torch.zeros(max(size // 4, 1), dtype=torch.float32, device=device)
    began = time.perf_counter()
    dist.all_reduce(values, group=group)
    synchronize(device)
    return time.perf_counter() - began


def _shortest_s(group: Any, size: int, device: torch.device) -> float:
    """The shortest of three all-reduces, since disturbances only make them longer; each on the slowest rank, so that
    all ranks decide in the same way."""
    durations = []
    for _ in range(3):
        longest = torch.tensor([_seconds(group, size, device)], dtype=torch.float64, device=device)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX, group=group)
        durations.append(float(longest.item()))
    return min(durations)
