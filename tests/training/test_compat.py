"""Private APIs of PyTorch that `training.compat` uses, where no other test uses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.training.compat import (
    compile_counters,
    ddp_logging_data,
    inductor_freezing,
    measured_passes,
    reset_compiler,
    set_ddp_sample_rate,
)

pytestmark = pytest.mark.usefixtures("group")


def test_the_compiler_counts_and_forgets() -> None:
    import torch._dynamo

    counters = compile_counters()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert counters["stats"]["unique_graphs"] >= 1
    reset_compiler()


def test_inductor_can_fold_constant_weights() -> None:
    import torch._inductor.config

    with inductor_freezing():
        assert torch._inductor.config.freezing
    assert not torch._inductor.config.freezing


@pytest.mark.parametrize("every", [1, 2, 7, 100])
def test_the_number_of_passes_that_ddp_has_measured_follows_from_the_last_one(every: int) -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
    set_ddp_sample_rate(ddp, every)
    readings: list[Any] = [None]
    for _ in range(40):
        ddp(torch.ones(2, 4)).sum().backward()
        data = ddp_logging_data(ddp)
        if "avg_backward_comm_time" in data and data["iteration"] != readings[-1]:
            readings.append(data["iteration"])
            assert measured_passes(data, every) == len(readings) - 1
    assert len(readings) > 10
