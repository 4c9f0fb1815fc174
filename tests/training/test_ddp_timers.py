"""Communication times of a model under DDP: what of DDP's timers counts."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.training.ddp_timers import SAMPLED_EVERY, DDPTimers, with_exposed


class TimersOfDDP:
    """DDP's timers at a given rate, as PyTorch 2.14 has them: means over the first 10 passes and each n-th one."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.seen: list[float] = []
        self.last = 0

    def add(self, number: int, comm_ms: float) -> None:
        self.last = number
        if number <= 10 or number % self.every == 0:
            self.seen.append(comm_ms)

    def read(self, ddp: Any) -> dict[str, Any]:
        return {"iteration": self.last, "avg_backward_comm_time": sum(self.seen) / max(len(self.seen), 1) * 1e6}


def test_cold_passes_of_the_warm_up_are_in_no_communication_time(group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
    shown = TimersOfDDP(SAMPLED_EVERY["cpu"])
    monkeypatch.setattr("dmls_ray.training.ddp_timers.ddp_logging_data", shown.read)
    timers = DDPTimers(ddp)
    for number in range(1, 31):
        shown.add(number, 100.0 if number <= 5 else 2.0)
        if number == 5:
            timers.count_from_here()
    assert timers.pass_ms()["comm_ms"] == pytest.approx(2.0, rel=1e-4)
    assert timers.passes == 25
    timers.count_from_here()
    assert timers.pass_ms() == {}, "nothing was measured since"


def test_times_of_a_model_that_is_gone_are_those_that_were_read_last(group: None) -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
    timers = DDPTimers(ddp)
    for _ in range(4):
        ddp(torch.ones(2, 4)).sum().backward()
    timers.read()
    read = timers.pass_ms()
    assert read["comm_ms"] > 0
    assert timers.passes == 3, "DDP logs a pass when the next one begins"
    del ddp
    gc.collect()
    assert timers._ddp() is None, "the timers keep no model"
    assert timers.pass_ms() == read


def test_exposed_communication_is_what_no_computation_hides() -> None:
    assert with_exposed({"comm_ms": 3.0, "overlap_ms": 1.0})["exposed_comm_ms"] == 2.0
    assert with_exposed({"comm_ms": 1.0, "overlap_ms": 1.5})["exposed_comm_ms"] == 0.0
    assert with_exposed({"comm_ms": 0.0, "overlap_ms": 0.0}) == {}
