"""Round trip and bandwidth between the machines of a run, by short all-reduces before it trains."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from dmls_ray.training.clocks import synchronize
from dmls_ray.training.process import wait_for_others
from dmls_ray.training.rank import RankInfo

_SMALL_ROUNDS = 20
_FIRST_BYTES = 64 * 1024
_MOST_BYTES = 16 * 2**20
_LONG_ENOUGH_S = 0.1
"""Duration of the largest message, so that latency, buffers and token buckets have little influence."""


def measure_link(rank: RankInfo, machines: Sequence[str]) -> tuple[dict[str, Any], float]:
    """Round trip and bandwidth between the machines of a run; empty on a single machine, and on all ranks but rank 0.

    One rank of each machine takes part, and the others wait. A ring all-reduce among m ranks is 2 (m - 1) messages one
    after the other, of 1/m of the data each (Patarasuk & Yuan, 2009). So a tiny one takes m - 1 round trips. The
    difference between the times of a larger and a smaller one is the time of 2 (m - 1) / m of their difference in
    bytes.

    Args:
        rank: this rank; the default process group has all ranks of the run.
        machines: the machine of each rank.

    Returns:
        `link_round_trip_ms`, the median of 20, and `link_mbit_per_s`, in one direction, of the slowest link; and the
        seconds that the measurement took on this rank.
    """
    leaders = [machines.index(machine) for machine in dict.fromkeys(machines)]
    if len(leaders) < 2:
        return {}, 0.0
    began = time.perf_counter()
    group = dist.new_group(leaders)
    metrics = _measured(group, rank, len(leaders)) if rank.rank in leaders else {}
    wait_for_others(rank)
    return metrics if rank.rank == 0 else {}, time.perf_counter() - began


def _measured(group: Any, rank: RankInfo, count: int) -> dict[str, float]:
    """The metrics of the link between the ranks of this group, one on each of `count` machines."""
    try:
        device = torch.device(rank.device if rank.backend == "nccl" else "cpu")
        small = [_seconds(group, 1, device) for _ in range(_SMALL_ROUNDS)]
        size, previous_s = _FIRST_BYTES, _shortest_s(group, _FIRST_BYTES, device)
        rate = 0.0
        while size < _MOST_BYTES:
            size *= 2
            seconds = _shortest_s(group, size, device)
            if seconds > previous_s:
                rate = 2 * (count - 1) / count * (size / 2) * 8 / 1e6 / (seconds - previous_s)
            previous_s = seconds
            if seconds > _LONG_ENOUGH_S:
                break
    finally:
        dist.destroy_process_group(group)
    metrics = {"link_round_trip_ms": statistics.median(small) * 1000 / (count - 1)}
    return metrics | ({"link_mbit_per_s": rate} if rate else {})


def _seconds(group: Any, size: int, device: torch.device) -> float:
    """Duration of an all-reduce of `size` bytes on this rank."""
    values = torch.zeros(max(size // 4, 1), dtype=torch.float32, device=device)
    began = time.perf_counter()
    dist.all_reduce(values, group=group)
    synchronize(device)
    return time.perf_counter() - began


def _shortest_s(group: Any, size: int, device: torch.device) -> float:
    """The shortest of three all-reduces, since disturbances only make them longer; of a long one, a single duration."""
    seconds = _slowest_s(group, size, device)
    if seconds > _LONG_ENOUGH_S / 2:
        return seconds
    return min(seconds, _slowest_s(group, size, device), _slowest_s(group, size, device))


def _slowest_s(group: Any, size: int, device: torch.device) -> float:
    """Duration of an all-reduce on the slowest rank, so that all ranks decide in the same way."""
    longest = torch.tensor([_seconds(group, size, device)], dtype=torch.float64, device=device)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX, group=group)
    return float(longest.item())
