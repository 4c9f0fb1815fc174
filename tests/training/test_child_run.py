"""A run in a child process: its result, and what does not reach the next run. The link between its machines."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RankEvent, RankResult
from dmls_ray.training.child_run import measure_link, run_in_child
from dmls_ray.training.process import store_at
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.workloads.classification.config import TrialConfig
from tests.run_results import returning

CONFIG = TrialConfig(batch_per_rank=16)

MACHINES = ("a", "a", "b", "c")
"""Of the ranks whose link is measured, which are processes of this one."""


def leave_state_behind(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """Return the state of the process, and change it."""
    found = {
        "variable": os.environ.get("LEFT_BEHIND"),
        "bits": torch.finfo(torch.get_default_dtype()).bits,
        "is_patched": torch.nn.Module.forward is None,
        "threads": threading.active_count(),
        "drawn": float(torch.rand(())),
    }
    os.environ["LEFT_BEHIND"] = "yes"
    torch.set_default_dtype(torch.float64)
    torch.nn.Module.forward = None  # type: ignore[assignment]
    threading.Thread(target=time.sleep, args=(600,)).start()
    return returning(found)


def fail(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    raise ArithmeticError("a fault")


def crash(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def end_in_c(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    ctypes.CDLL(None).exit(0)
    return {}


def become_another_program(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    os.execlp("sleep", "sleep", "60")


def add_up(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    total = torch.tensor(float(rank.rank + 1))
    dist.all_reduce(total)
    return returning({"total": float(total)})


def stop_when_asked(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    epoch = 1
    while emit(EpochEnded(epoch=EpochRecord(epoch=epoch))):
        epoch += 1
    return returning({"epochs": epoch})


@pytest.fixture(scope="module")
def servers() -> Iterator[list[ForkServer]]:
    servers = [ForkServer("dmls_ray.training.rank:preload", __name__) for _ in range(2)]
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def server(servers: list[ForkServer]) -> ForkServer:
    return servers[0]


def result_of(
    server: ForkServer, function: Any, rank: RankInfo | None = None, emit: Emit = lambda event: None
) -> RankResult:
    """The result of a function of this module."""
    results: list[RankResult] = []
    train = f"{__name__}:{function.__name__}"
    without = run_in_child(server, train, CONFIG, rank or RankInfo(), "run", emit, results.append)
    assert (without is None) == bool(results)
    return without or results[0]


def test_nothing_that_a_run_leaves_behind_reaches_the_next_one(server: ForkServer) -> None:
    first, second = (result_of(server, leave_state_behind) for _ in range(2))
    assert first.outcome is Outcome.OK
    assert first.run.reported["returned"]["variable"] is None
    assert first.run == second.run


def test_an_error_is_the_result_of_its_run(server: ForkServer) -> None:
    result = result_of(server, fail)
    assert (result.outcome, result.reason) == (Outcome.ERROR, "ArithmeticError: a fault")


def test_a_crash_ends_its_run_only(server: ForkServer) -> None:
    result = result_of(server, crash)
    assert (result.outcome, result.reason) == (Outcome.KILLED, "its process ended with exit code -11")
    assert result_of(server, leave_state_behind).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (end_in_c, "its process ended with exit code 0 in the middle of the run"),
        (become_another_program, "its process closed its connection, or became another program"),
    ],
)
def test_a_process_that_leaves_without_a_result_is_an_error_within_seconds(
    server: ForkServer, function: Any, reason: str
) -> None:
    began = time.monotonic()
    result = result_of(server, function)
    assert (result.outcome, reason in result.reason) == (Outcome.ERROR, True), result.reason
    assert time.monotonic() - began < 10


def test_a_prunable_run_waits_for_the_decision_after_each_epoch(server: ForkServer) -> None:
    taken: list[RankEvent] = []

    def emit(event: RankEvent) -> bool:
        taken.append(event)
        return len(taken) < 3

    result = result_of(server, stop_when_asked, RankInfo(prunable=True), emit)
    assert result.run.reported["returned"] == {"epochs": 3}
    assert [event.epoch.epoch for event in taken if isinstance(event, EpochEnded)] == [1, 2, 3]


def test_the_children_of_two_ranks_form_a_process_group(servers: list[ForkServer]) -> None:
    store = store_at("127.0.0.1")
    address = ("127.0.0.1", store.port)
    ranks = [RankInfo(rank=rank, world_size=2, backend="gloo", store_address=address) for rank in range(2)]
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(result_of, servers, [add_up, add_up], ranks))
    assert [result.run.reported["returned"] for result in results] == [{"total": 3.0}] * 2


def _measure_link_of(number: int, folder: str, reported: Any) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", len(MACHINES))
    dist.init_process_group("gloo", store=store, rank=number, world_size=len(MACHINES))
    rank = RankInfo(rank=number, world_size=len(MACHINES), backend="gloo", machines=MACHINES)
    began = time.perf_counter()
    link, seconds = measure_link(rank)
    reported[number] = link, seconds, time.perf_counter() - began
    # The group of all is as it was.
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == len(MACHINES)
    dist.destroy_process_group()


@pytest.mark.slow
def test_only_rank_0_returns_the_round_trip_and_the_bandwidth(tmp_path: Path) -> None:
    with mp.Manager() as manager:
        reported = manager.dict()
        mp.spawn(_measure_link_of, (str(tmp_path), reported), nprocs=len(MACHINES))
        results = dict(reported)
    first = results[0][0]
    assert set(first) == {"link_round_trip_ms", "link_mbit_per_s"}
    assert 0 < first["link_round_trip_ms"] < 1000
    assert first["link_mbit_per_s"] > 10
    assert all(results[number][0] == {} for number in range(1, len(MACHINES)))
    for _, seconds, whole in results.values():
        assert 0.9 * whole < seconds <= whole, "every rank knows what the probe took, also one that only waited"


def test_a_run_on_one_machine_has_no_link() -> None:
    assert measure_link(RankInfo(world_size=2, machines=("a", "a"))) == {}
    assert measure_link(RankInfo()) == {}
