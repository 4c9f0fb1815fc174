"""What a rank communicates in its steps."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist

from dmls_ray.training.clocks import StepTimer
from dmls_ray.training.observed.communication import Communication
from dmls_ray.training.observed.hooks import Faults

pytestmark = pytest.mark.usefixtures("group")


@pytest.mark.parametrize(("passes", "parts"), [(1, 5), (0, 3)])
def test_waits_for_collectives_are_in_no_part_of_a_step(passes: int, parts: int) -> None:
    timer, faults = StepTimer(torch.device("cpu"), 1), Faults()
    communication = Communication(timer, faults, is_watched=True)
    timer.begin_epoch()
    with communication.watched():
        for number in range(4):
            if passes:
                communication.backward_began()
                communication.backward_ended()
                timer.phases.after("backward")
            time.sleep(0.002)
            dist.all_reduce(torch.ones(1000))
            timer.phases.after("rest")
            communication.step_ended()
            timer.step()
            communication.step_counted(number)
    timer.end_epoch()
    known = communication.parts_ms()
    assert (faults.first, communication.unseen) == ("", 0)
    assert known["exposed_comm_ms"] == known["all_reduce_ms"] > 0
    assert known["rest_ms"] >= 1.9
    own = {name: ms for name, ms in known.items() if name not in ("exposed_comm_ms", "all_reduce_ms")}
    assert len(own) == parts
    assert sum(own.values()) + known["exposed_comm_ms"] == pytest.approx(sum(timer.step_ms) / 3, rel=0.05)
