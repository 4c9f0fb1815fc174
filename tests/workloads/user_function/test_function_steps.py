"""Where the time of a step of a user's own function goes, as it is seen from outside."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from dmls_ray.launchers.inline import run_inline
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import Emit, RankInfo, TrainFunction
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.new_processes import run_ranks

SLOW = 0.005
"""Seconds that each slow part of these functions takes."""

PARTS = ("data_wait_ms", "forward_ms", "backward_ms", "optimizer_ms", "rest_ms")


def run(function: Any, **values: Any) -> dict[str, Any]:
    result = run_inline(user_function_schema(function, values).make(**values), train=run_user_function)
    assert result.outcome == "ok", result.traceback
    return result.values


class SlowSamples(torch.utils.data.Dataset[torch.Tensor]):
    """Samples of which each takes 5 ms to read."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SLOW)
        return torch.ones(())


def loads(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    place = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([place], lr=0.1)
    for batch in torch.utils.data.DataLoader(SlowSamples(), batch_size=config["batch"]):
        (place * batch).sum().backward()
        optimizer.step()


def test_what_a_function_waits_for_its_data_loader_is_a_part_of_its_steps() -> None:
    waits = torch.utils.data.dataloader._BaseDataLoaderIter.__next__
    found = run(loads, batch=2)
    assert found["data_wait_ms"] >= 10
    assert found["data_wait_ms"] > 0.5 * sum(found[name] for name in PARTS)
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__ is waits, "a run leaves the class as it was"


class Slow(torch.autograd.Function):
    """The identity, whose forward and backward pass take 5 and 10 ms."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        time.sleep(SLOW)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        time.sleep(2 * SLOW)
        return gradient


def computes(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    """Each step has one forward and backward pass, tests after every fifth step, and 5 ms after each backward pass."""
    place = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([place], lr=0.1)
    for number in range(20):
        optimizer.zero_grad()
        loss = checkpoint(Slow.apply, place, use_reentrant=True) if config["checkpoints"] else Slow.apply(place)
        loss.backward()
        time.sleep(SLOW)  # as clipping gradients
        optimizer.step()
        if number % 5 == 4:
            time.sleep(20 * SLOW)  # as testing the model
            emit({"train_loss": place.item()})


@pytest.mark.parametrize(("checkpoints", "backward"), [(False, 10), (True, 15)])
def test_forward_and_backward_pass_of_a_function_are_parts_of_its_steps(checkpoints: bool, backward: int) -> None:
    backward_of_torch = torch.autograd.backward
    for _ in range(3):  # a busy machine may halt the process within a part
        found = run(computes, checkpoints=checkpoints)
        if found["forward_ms"] < 9 and found["backward_ms"] < backward + 4:
            break
    assert 5 <= found["forward_ms"] < 9
    assert backward <= found["backward_ms"] < backward + 4
    assert found["rest_ms"] >= 5 + 20, "what lies between backward pass and optimizer, and tests before a report"
    assert torch.autograd.backward is backward_of_torch, "a run leaves the module as it was"


def without_autograd(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    place = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([place], lr=config["lr"])
    for _ in range(10):
        time.sleep(SLOW)
        place.grad = torch.ones(())
        optimizer.step()


def test_without_a_backward_pass_nothing_is_called_forward_or_backward() -> None:
    found = run(without_autograd, lr=0.1)
    assert found["rest_ms"] >= 5
    assert not {"forward_ms", "backward_ms", "comm_ms"} & found.keys()


def on_ranks(function: TrainFunction, **values: Any) -> list[RankResult]:
    schema = user_function_schema(function, values)
    ranks = run_ranks(schema.make(**values, device="cpu", world_size=2), train=run_user_function)
    assert [rank.outcome for rank in ranks] == ["ok", "ok"], ranks[0].traceback or ranks[1].traceback
    return ranks


def communicates(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    """Trains models under DDP, one after the other; rank 1 computes 5 ms longer in each step."""
    for _ in range(config["models"]):
        ddp = DistributedDataParallel(torch.nn.Linear(256, 256))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
        for _ in range(20):
            optimizer.zero_grad()
            loss = ddp(torch.ones(4, 256)).square().mean()
            if rank.rank == 1:
                time.sleep(SLOW)
            loss.backward()
            optimizer.step()
        del ddp, optimizer, loss


@pytest.mark.parametrize("models", [1, 2])
def test_communication_under_ddp_is_a_part_of_a_step_of_a_function(models: int) -> None:
    for _ in range(3):  # a busy machine may halt a rank
        first, second = (rank.values for rank in on_ranks(communicates, models=models))
        if second["exposed_comm_ms"] < first["exposed_comm_ms"] / 2 and first["backward_ms"] < 4:
            break
    for found in (first, second):
        parts = [found[name] for name in (*PARTS, "exposed_comm_ms")]
        assert sum(parts) == pytest.approx(found["step_ms_p50"], rel=0.5)
        assert found["comm_ms"] > 0
    assert first["exposed_comm_ms"] > 4, "the first rank waits for the second inside its communication"
    assert second["exposed_comm_ms"] < first["exposed_comm_ms"] / 2
    assert first["backward_ms"] < 4
    assert second["forward_ms"] >= 5


def accumulates(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    """Two backward passes a step, each of which communicates and waits 5 ms for rank 1."""
    ddp = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=config["lr"])
    for _ in range(20):
        optimizer.zero_grad()
        for _ in range(2):
            loss = ddp(torch.ones(4, 16)).square().mean()
            if rank.rank == 1:
                time.sleep(SLOW)
            loss.backward()
        optimizer.step()


def test_communication_is_that_of_all_passes_of_a_step() -> None:
    first, _ = (rank.values for rank in on_ranks(accumulates, lr=0.01))
    assert first["exposed_comm_ms"] > 8
