"""What the network between the machines of a run does: a short all-reduce among one rank of each, before it trains."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from dmls_ray.training.rank import RankInfo

_SMALL_ROUNDS = 20
_FIRST_BYTES = 64 * 1024
_MOST_BYTES = 16 * 2**20
_LONG_ENOUGH_S = 0.1
"""How long the largest message is to take: then neither latency nor what buffers and token buckets let through at once
counts for much."""


def measure_link(rank: RankInfo, machines: Sequence[str]) -> dict[str, Any]:
    """Round trip and bandwidth between the machines of a run; empty where it is on one, and on ranks but the first.

    One rank of each machine takes part. A ring all-reduce among m ranks is 2 (m - 1) messages one after the other, of
    1/m of the data each (Patarasuk & Yuan, 2009). So a tiny one takes m - 1 round trips, and what a larger one takes
    beyond a smaller one is the time of 2 (m - 1) / m of the bytes that it has more.

    Args:
        rank: this one; the default process group is of all ranks of the run.
        machines: the machine of each rank.

    Returns:
        `link_round_trip_ms`, the median of 20, and `link_mbit_per_s`, in one direction, of the slowest link.
    """
    leaders = [machines.index(machine) for machine in dict.fromkeys(machines)]
    if len(leaders) < 2:
        return {}
    group = dist.new_group(leaders)
    if rank.rank not in leaders:
        return {}
    try:
        device = torch.device(rank.device if rank.backend == "nccl" else "cpu")
        count = len(leaders)
        small = [_seconds(group, 1, device) for _ in range(_SMALL_ROUNDS)]
        size, before = _FIRST_BYTES, _least(group, _FIRST_BYTES, device)
        rate = 0.0
        while size < _MOST_BYTES:
            size *= 2
            took = _least(group, size, device)
            if took > before:
                rate = 2 * (count - 1) / count * (size / 2) * 8 / 1e6 / (took - before)
            before = took
            if took > _LONG_ENOUGH_S:
                break
    finally:
        dist.destroy_process_group(group)
    if rank.rank != 0:
        return {}
    told = {"link_round_trip_ms": statistics.median(small) * 1000 / (count - 1)}
    return told | ({"link_mbit_per_s": rate} if rate else {})


def _seconds(group: Any, size: int, device: torch.device) -> float:
    """How long an all-reduce of so many bytes takes, on this rank."""
    values = torch.zeros(max(size // 4, 1), dtype=torch.float32, device=device)
    began = time.perf_counter()
    dist.all_reduce(values, group=group)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _least(group: Any, size: int, device: torch.device) -> float:
    """The least of three times of an all-reduce, or the one where that is long: what disturbs only makes it longer.

    Each is the slowest rank's, which all of them have: so they stop together.
    """
    took = _slowest(group, _seconds(group, size, device), device)
    if took > _LONG_ENOUGH_S / 2:
        return took
    return min(took, *(_slowest(group, _seconds(group, size, device), device) for _ in range(2)))


def _slowest(group: Any, seconds: float, device: torch.device) -> float:
    told = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(told, op=dist.ReduceOp.MAX, group=group)
    return float(told.item())
