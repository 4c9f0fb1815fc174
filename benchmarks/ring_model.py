"""The ring all-reduce as a model of the step time on several machines.

N ranks, r on each machine; times in milliseconds.

    buckets     DDP's buckets of gradients: the first contains 1 MiB of fp32 gradients and each further one 25 MiB, or
                each bucket_cap_mib. Counted as if layers could be cut, which gives the largest number of buckets.
                Compression to 16 bits halves the bytes on the link (Li et al., VLDB 2020).
    ring        2 (N - 1) messages of 1/N of a bucket, one after the other: 2 (N - 1) x half a round trip, and
                2 (N - 1) / N x bytes at the link's bandwidth (Patarasuk & Yuan, 2009; Thakur et al., 2005). In the
                order of machines the ring leaves and enters each machine once, so its r ranks are one user of the link.
    hidden      in buckets       a bucket is sent once its gradients are ready and the bucket before it has been sent;
                                 gradients become ready evenly in bytes over the backward pass. This is the prediction.
                all hidden       only what exceeds the backward pass is exposed: the fastest step.
                nothing hidden   everything is sent after the backward pass: the slowest step.
    step        the one-machine step with r ranks, plus the communication that the links expose beyond the
                communication that was exposed on one machine.

A step is global_batch / images_per_s. Exposed communication on one machine and the backward pass are measured by DDP's
timers, on the rank that waited least, because the others wait for it. A single rank has no such timers. Its backward
pass is that of the one-machine runs with the fewest ranks above 1, or else two thirds of a pass.

- Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, Journal of Parallel and
  Distributed Computing 69 (2), 2009.
- Thakur, Rabenseifner & Gropp, Optimization of collective communication operations in MPICH, International Journal of
  High Performance Computing Applications 19 (1), 2005.
- Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, PVLDB 13 (12), 2020,
  arXiv 2006.15704.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

MIB = 2**20
FIRST_BUCKET_MIB, BUCKET_MIB = 1, 25
"""DDP's defaults, in fp32 gradients."""
BYTES_SENT = {"none": 4, "fp16": 2, "bf16": 2}
"""Bytes of one gradient on the link, by `compression`."""
Rule = Literal["in buckets", "all hidden", "nothing hidden"]
RULES: tuple[Rule, ...] = get_args(Rule)
Values = float | NDArray[np.float64]
"""One value, or one value per draw."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Measurements that a prediction is made from."""

    step_ms: Values
    """Step time of the ranks of one machine."""
    exposed_ms: Values
    """Exposed communication within it."""
    backward_ms: Values
    round_trip_ms: Values
    mbit_per_s: Values


def bucket_bytes(parameters: int, *, sent: int = 4, cap_mib: float | None = None) -> list[float]:
    """Bytes sent for each of DDP's buckets, in the order in which they become ready.

    Args:
        parameters: number of gradients.
        sent: bytes of one gradient on the link.
        cap_mib: size of a bucket; None for DDP's default.
    """
    left = parameters * 4.0
    first, further = (FIRST_BUCKET_MIB, BUCKET_MIB) if cap_mib is None else (cap_mib, cap_mib)
    sizes: list[float] = []
    while left > 0:
        sizes.append(min(left, (further if sizes else first) * MIB))
        left -= sizes[-1]
    return [size * sent / 4 for size in sizes]


def ring_ms(size: float, ranks: int, round_trip_ms: Values, mbit_per_s: Values) -> Values:
    """Time of a ring all-reduce of `size` bytes."""
    return 2 * (ranks - 1) * round_trip_ms / 2 + 2 * (ranks - 1) / ranks * size * 8 / 1e3 / mbit_per_s


def exposed_ms(sizes: Sequence[float], ranks: int, inputs: Inputs, rule: Rule = "in buckets") -> Values:
    """Time that a step waits for the links after its backward pass."""
    durations = [ring_ms(size, ranks, inputs.round_trip_ms, inputs.mbit_per_s) for size in sizes]
    if rule == "nothing hidden":
        return sum(durations, 0.0)
    if rule == "all hidden":
        return _larger(sum(durations, 0.0) - inputs.backward_ms, 0.0)
    sent_at: Values = 0.0
    ready = 0.0
    for size, duration in zip(sizes, durations, strict=True):
        ready += size / sum(sizes)
        sent_at = _larger(sent_at, ready * inputs.backward_ms) + duration
    return sent_at - inputs.backward_ms


def step_ms(sizes: Sequence[float], ranks: int, inputs: Inputs, rule: Rule = "in buckets") -> Values:
    """Time of a step of `ranks` ranks on several machines."""
    return inputs.step_ms + _larger(exposed_ms(sizes, ranks, inputs, rule) - inputs.exposed_ms, 0.0)


def _larger(a: Values, b: Values) -> Values:
    larger: Values = np.maximum(a, b)
    return larger
