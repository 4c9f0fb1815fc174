"""Where the time of a step of a user's own function goes, as it is seen from outside."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce, wait_tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from dmls_ray.records.metrics import COLLECTIVES
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.further_steps import trace_name
from dmls_ray.training.rank import ArtifactOptions, Emit, RankInfo, TrainFunction
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.new_processes import run_inline, run_ranks
from tests.training.test_further_steps import spans
from tests.workloads.user_function.test_rank_run import run_in_place

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
    assert [rank.outcome for rank in ranks] == ["ok", "ok"], ranks
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


STEP = "Optimizer.step#SGD.step"


def train(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Takes steps on one model under DDP; rank 0 alone reports."""
    model: torch.nn.Module = torch.nn.Linear(4, 4)
    if rank.world_size > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.zeros(())
    for number in range(config["steps"]):
        loss = model(torch.randn(2, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank.rank == 0:
            emit({"epoch": number + 1, "train_loss": loss})
    return {"test_loss": loss.detach()}


def call(function: Any, steps: int, folder: Path, world_size: int = 1) -> None:
    config = user_function_schema(function, ["steps"]).make(steps=steps, device="cpu", world_size=world_size)
    results = run_in_place(config, artifacts=ArtifactOptions(folder=str(folder), trace=True))
    assert {result.outcome for result in results} == {"ok"}, results[0].traceback


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_trace_of_a_function_has_a_few_steps_of_every_rank(tmp_path: Path, world_size: int) -> None:
    call(train, 30, tmp_path, world_size)
    for rank in range(world_size):
        names = spans(tmp_path / trace_name(rank))
        assert names.count(STEP) == 3, "the last of the warm-up"
        assert names.count("aten::randn") == 3
        assert any("backward" in name.lower() for name in names)


@pytest.mark.parametrize(("steps", "has_trace"), [(1, False), (3, True)])
def test_a_function_of_fewer_steps_is_traced_to_its_end(steps: int, has_trace: bool, tmp_path: Path) -> None:
    call(train, steps, tmp_path)
    assert (tmp_path / trace_name(0)).exists() is has_trace


def counts(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(128, 4)), 8)
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        if config["counts"]:
            rank.count(samples=3, tokens=24)
        optimizer.step()


@pytest.mark.parametrize(("says", "samples", "counted_by"), [(True, 3, "user"), (False, 8, "loader and model agree")])
def test_rates_are_of_what_a_function_counts_or_else_of_what_is_seen(says: bool, samples: int, counted_by: str) -> None:
    schema = user_function_schema(counts, {"counts": says})
    result = run_inline(schema.make(counts=says), train=run_user_function)
    assert result.outcome == "ok", result.traceback
    assert result.values["samples_per_step"] == samples
    assert result.run.facts["counted_by"] == counted_by
    assert ("tokens_per_s" in result.metrics) == says


def reduces(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    """Averages gradients otherwise than DDP; rank 1 computes 5 ms longer in each step."""
    model = torch.nn.Linear(256, 256)
    if config["how"] == "fsdp2":
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 256)).square().mean()
        if rank.rank == 1:
            time.sleep(SLOW)
        loss.backward()
        gradients = [item.grad for item in model.parameters() if item.grad is not None]
        if config["how"] == "by_hand":
            for gradient in gradients:
                dist.all_reduce(gradient)
        elif config["how"] == "compiled":
            for gradient in gradients:
                gradient.copy_(wait_tensor(all_reduce(gradient, "sum", dist.group.WORLD)))
        optimizer.step()


@pytest.mark.parametrize(
    ("how", "kinds"), [("by_hand", {"all_reduce_ms"}), ("fsdp2", {"all_gather_ms", "reduce_scatter_ms"})]
)
def test_communication_of_other_wrappers_and_by_hand_is_known_by_its_kinds(how: str, kinds: set[str]) -> None:
    for _ in range(3):  # a busy machine may halt a rank
        first, second = (rank.values for rank in on_ranks(reduces, how=how))
        if second["exposed_comm_ms"] < first["exposed_comm_ms"]:
            break
    assert second["exposed_comm_ms"] < first["exposed_comm_ms"], "rank 0 waits for rank 1"
    for found in (first, second):
        assert {f"{kind}_ms" for kind in COLLECTIVES} & found.keys() == kinds
        assert sum(found[kind] for kind in kinds) == pytest.approx(found["exposed_comm_ms"])
        parts = [found[name] for name in (*PARTS, "exposed_comm_ms")]
        assert sum(parts) == pytest.approx(found["step_ms_mean"], rel=0.05)


def test_communication_that_no_python_code_waits_for_is_not_known() -> None:
    for rank in on_ranks(reduces, how="compiled"):
        assert not {"exposed_comm_ms", "all_reduce_ms"} & rank.values.keys()
