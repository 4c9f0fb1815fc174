"""A trace of a training function of a user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dmls_ray.launchers.inline import run_inline
from dmls_ray.training.rank import ArtifactOptions, Emit, RankInfo
from dmls_ray.training.trace import TRACED_STEPS, trace_name
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
    if rank.artifacts is not None:
        Path(rank.artifacts.folder).mkdir(parents=True, exist_ok=True)
        (Path(rank.artifacts.folder) / "ended").touch()
    return {"test_loss": loss.detach()}


def measure(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Multiplies matrices, and has no optimizer."""
    for _ in range(config["steps"]):
        torch.ones(8, 8) @ torch.ones(8, 8)
        emit({"kind": "progress"})
    return {"products": config["steps"]}


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
        # At world size 1 a report counts as a step does.
        assert names.count(STEP) == (TRACED_STEPS if world_size == 2 else TRACED_STEPS // 2)
        assert any(name.startswith("aten::") for name in names)


def trains_once(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Makes a folder that must not be there yet."""
    Path(config["folder"]).mkdir()
    return {"test_loss": 0.5}


def test_a_function_that_cannot_be_called_twice_keeps_its_run_and_says_why_it_has_no_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = user_function_schema(trains_once, ["folder"]).make(folder=str(tmp_path / "once"), device="cpu")
    artifacts = ArtifactOptions(folder=str(tmp_path / "run"), trace=True)
    result = run_inline(config, train=run_user_function, artifacts=artifacts)
    assert result.outcome == "ok"
    assert result.run["test_loss"] == 0.5
    assert not (tmp_path / "run" / trace_name(0)).exists()
    error = capsys.readouterr().err
    assert "Rank 0 has no trace: the function failed when it was called a further time." in error
    assert "FileExistsError" in error


def steps_on_rank_0(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    """Only rank 0 has an optimizer; both ranks average its parameters after each of its steps."""
    place = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([place], lr=0.1) if rank.rank == 0 else None
    for _ in range(config["steps"]):
        if optimizer is not None:
            (place**2).backward()
            optimizer.step()
        torch.distributed.broadcast(place.data, 0)


def test_where_ranks_do_not_step_alike_the_traced_call_goes_to_its_end(tmp_path: Path) -> None:
    call(steps_on_rank_0, 12, tmp_path, 2)
    assert spans(tmp_path / trace_name(0)).count(STEP) == 12
    assert (tmp_path / trace_name(1)).exists()


def test_a_function_of_fewer_steps_is_traced_to_its_end(tmp_path: Path) -> None:
    call(train, 3, tmp_path, 2)
    assert spans(tmp_path / trace_name(1)).count(STEP) == 3


def test_a_trace_changes_no_result_and_no_file_of_the_run(tmp_path: Path) -> None:
    (traced,) = call(train, 12, tmp_path)
    (plain,) = call(train, 12, None)
    for result in (traced, plain):
        for epoch in result.run["epochs"]:
            assert epoch.pop("ended_s") > 0
    for name in ("steps", "epochs"):
        assert traced.run[name] == plain.run[name]
    assert traced.run["steps"] == 12
    assert (tmp_path / "ended").exists()
    assert not (tmp_path / "traced" / "ended").exists(), "the call that is traced ends before"


def test_a_function_without_an_optimizer_is_traced_for_a_few_reports(tmp_path: Path) -> None:
    (result,) = call(measure, 50, tmp_path)
    assert result.run["products"] == 50
    assert spans(tmp_path / trace_name(0)).count("aten::mm") == TRACED_STEPS
