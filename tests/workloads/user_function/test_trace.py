"""A trace of a training function of a user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dmls_ray.launchers.inline import run_inline
from dmls_ray.training.rank import ArtifactOptions, Emit, RankInfo
from dmls_ray.training.trace import trace_name
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.new_processes import run_ranks
from tests.training.test_trace import spans

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


def call(function: Any, steps: int, folder: Path | None, world_size: int = 1) -> list[Any]:
    config = user_function_schema(function, ["steps"]).make(steps=steps, device="cpu", world_size=world_size)
    artifacts = None if folder is None else ArtifactOptions(folder=str(folder), trace=True)
    results = (
        [run_inline(config, train=run_user_function, artifacts=artifacts)]
        if world_size == 1
        else run_ranks(config, train=run_user_function, artifacts=artifacts)
    )
    assert {result.outcome for result in results} == {"ok"}, results[0].traceback
    return results


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


def test_a_trace_changes_no_result_of_the_run(tmp_path: Path) -> None:
    (traced,) = call(train, 12, tmp_path)
    (plain,) = call(train, 12, None)
    for result in (traced, plain):
        for epoch in result.run["epochs"]:
            assert epoch.pop("ended_s") > 0
    for name in ("steps", "epochs"):
        assert traced.run[name] == plain.run[name]
    assert traced.run["steps"] == 12
