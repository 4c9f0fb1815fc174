"""Each private API of PyTorch that `training.compat` uses still exists in the installed version."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.training.clocks import Stopwatch
from dmls_ray.training.compat import (
    after_each_ddp,
    around_backward_passes,
    around_zero_broadcasts,
    compile_counters,
    ddp_logging_data,
    found_inf,
    inductor_freezing,
    measured_passes,
    reset_compiler,
    set_ddp_sample_rate,
    work_of,
)

pytestmark = pytest.mark.usefixtures("group")


def test_ddp_reports_its_times_at_the_rate_that_is_set() -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
    set_ddp_sample_rate(ddp, 1)
    for _ in range(2):  # the averages exist from the second pass on
        ddp(torch.ones(2, 4)).sum().backward()
    names = {f"avg_{name}_time" for name in ("forward_compute", "backward_compute", "backward_comm")}
    assert names <= ddp_logging_data(ddp).keys()
    assert "avg_backward_compute_comm_overlap_time" in ddp_logging_data(ddp)


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


def test_a_work_waits_for_its_future() -> None:
    future: torch.futures.Future[int] = torch.futures.Future()
    work = work_of(future)
    future.set_result(1)
    assert work.wait()


def test_the_scaler_says_whether_a_gradient_is_not_finite() -> None:
    for value in (1.0, float("inf")):
        weight = torch.nn.Parameter(torch.ones(2))
        scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD([weight])
        scaler.scale(weight.sum() * value).backward()
        scaler.unscale_(optimizer)
        assert bool(found_inf(scaler, optimizer)) is (value != 1.0)


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


def test_zero_broadcasts_its_parameters_once_a_step() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = ZeroRedundancyOptimizer([weight], optimizer_class=torch.optim.SGD, lr=0.1)
    stopwatch = Stopwatch(torch.device("cpu"), every=1)
    around_zero_broadcasts(optimizer, stopwatch.timed)
    assert stopwatch.mean_ms() is None
    weight.sum().backward()
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((2,), 0.9))
    assert (stopwatch.mean_ms() or 0) > 0


def test_backward_passes_and_models_under_ddp_are_noticed_while_the_context_lasts() -> None:
    seen: list[object] = []
    before = DistributedDataParallel.__init__, torch.autograd.backward
    with (
        after_each_ddp(seen.append),
        around_backward_passes(lambda tensors: seen.append("begins"), lambda: seen.append("ends")),
    ):
        ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
        ddp(torch.ones(2, 4)).sum().backward()
        with pytest.raises(RuntimeError, match="grad"):
            torch.ones(()).backward()
    assert seen == [ddp, "begins", "ends", "begins", "ends"]
    assert before == (DistributedDataParallel.__init__, torch.autograd.backward)
