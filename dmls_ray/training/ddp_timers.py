"""`DDPTimers`: the times of communication that DDP measures in its backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import torch
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.training.compat import ddp_logging_data, measured_passes, set_ddp_sample_rate

SAMPLED_EVERY = {"cpu": 2, "cuda": 100}
"""Interval in passes at which communication is timed. On a GPU DDP waits for the device then, so it is rare; on a CPU
it costs about 12 microseconds."""

_TIMES = {
    "comm_ms": "avg_backward_comm_time",
    "overlap_ms": "avg_backward_compute_comm_overlap_time",
}
"""Metrics of communication -> names of DDP's timers."""


class DDPTimers:
    """The communication times of a model under DDP, without those of its warm-up.

    The model is not kept: once it is gone, what was read last holds.

    Args:
        ddp: the model; DDP samples its times from now on at the rate of `SAMPLED_EVERY`.
    """

    def __init__(self, ddp: DistributedDataParallel) -> None:
        device = next(ddp.parameters(), torch.empty(0)).device.type
        self._ddp = weakref.ref(ddp)
        self._every = SAMPLED_EVERY[device]
        set_ddp_sample_rate(ddp, self._every)
        self._measured = 0, 0, dict.fromkeys(_TIMES, 0.0)
        """Passes so far, how many of them DDP has measured, and the milliseconds that these took together."""
        self._at_start = self._measured

    def count_from_here(self) -> None:
        """Leave the passes so far out: they were the warm-up."""
        self.read()
        self._at_start = self._measured

    def read(self) -> None:
        """Read DDP's timers, which are gone with the model."""
        ddp = self._ddp()
        if ddp is None:
            return
        data = ddp_logging_data(ddp)
        count = measured_passes(data, self._every)
        sums = {name: data.get(timer, 0) / 1e6 * count for name, timer in _TIMES.items()}
        self._measured = int(data.get("iteration", 0)), count, sums

    @property
    def passes(self) -> int:
        """Passes that communicated, without the warm-up, when the timers were read last. DDP logs a pass when the next
        one begins."""
        return self._measured[0] - self._at_start[0]

    def pass_ms(self) -> dict[str, float]:
        """Mean milliseconds of a pass that communicates, as DDP sampled them: `comm_ms` and `overlap_ms`; empty if it
        sampled none.

        See Li et al., VLDB 2020, arXiv 2006.15704.
        """
        self.read()
        _, count, sums = self._measured
        _, count_before, sums_before = self._at_start
        if count <= count_before:
            return {}
        return {name: max(sums[name] - sums_before[name], 0.0) / (count - count_before) for name in _TIMES}


def with_exposed(ms: Mapping[str, float]) -> dict[str, float]:
    """The times and `exposed_comm_ms`, the communication that no computation hides; empty without communication."""
    return {**ms, "exposed_comm_ms": max(ms["comm_ms"] - ms["overlap_ms"], 0.0)} if ms["comm_ms"] else {}
