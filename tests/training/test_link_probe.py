"""The link between machines, measured by ranks that are processes of this one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from dmls_ray.training.link_probe import measure_link
from dmls_ray.training.rank import RankInfo

MACHINES = ("a", "a", "b", "c")


def _rank(number: int, folder: str, reported: Any) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", len(MACHINES))
    dist.init_process_group("gloo", store=store, rank=number, world_size=len(MACHINES))
    rank = RankInfo(rank=number, world_size=len(MACHINES), backend="gloo")
    began = time.perf_counter()
    link, seconds = measure_link(rank, MACHINES)
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
        mp.spawn(_rank, (str(tmp_path), reported), nprocs=len(MACHINES))
        results = dict(reported)
    first = results[0][0]
    assert set(first) == {"link_round_trip_ms", "link_mbit_per_s"}
    assert 0 < first["link_round_trip_ms"] < 1000
    assert first["link_mbit_per_s"] > 10
    assert all(results[number][0] == {} for number in range(1, len(MACHINES)))
    for _, seconds, whole in results.values():
        assert 0.9 * whole < seconds <= whole, "every rank knows what the probe took, also one that only waited"


def test_a_run_on_one_machine_has_no_link() -> None:
    assert measure_link(RankInfo(world_size=2), ("a", "a")) == ({}, 0.0)
    assert measure_link(RankInfo(), ()) == ({}, 0.0)
