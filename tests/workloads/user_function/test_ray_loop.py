"""Training functions as Ray Train has them: what `ray.train` says in them is of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import (
    OF_LOOPS,
    UserFunctionConfig,
    UserFunctionWorkload,
    user_function_schema,
)
from tests.new_processes import run_inline, run_ranks

MODULE = "tests.workloads.user_function.test_ray_loop"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop on CPUs sees no GPU from then on; here it shares its process with other tests."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", ""))


def loop(config: dict[str, Any]) -> None:
    import ray.train
    import ray.train.collective
    import ray.train.torch

    context = ray.train.get_context()
    dataset = TensorDataset(torch.arange(32.0).unsqueeze(1), torch.ones(32, 1))
    loader = ray.train.torch.prepare_data_loader(DataLoader(dataset, config["batch_size"]))
    model = ray.train.torch.prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.get("lr", 1e-3))
    for _ in range(2):
        for features, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(features), labels)
            loss.backward()
            optimizer.step()
        is_wrapped = isinstance(model, DistributedDataParallel)
        ray.train.report({"loss": loss.item(), "world": context.get_world_size(), "wrapped": int(is_wrapped)})
    assert ray.train.get_checkpoint() is None
    ray.train.collective.barrier()


def without_config() -> None:
    import ray.train

    ray.train.report({"loss": 1.0})


def with_dataset(config: dict[str, Any]) -> None:
    import ray.train

    ray.train.get_dataset_shard("train")


def of_two(config: dict[str, Any], rank: Any) -> None: ...


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_loop_of_ray_train_sees_this_run_and_its_ranks(world_size: int) -> None:
    schema = user_function_schema(f"{MODULE}:loop")
    config = schema.make(batch_size=4, world_size=world_size)
    if world_size == 1:
        results = [run_inline(config, train=run_user_function)]
    else:
        results = run_ranks(config, train=run_user_function)
    assert [result.outcome for result in results] == ["ok"] * world_size, results[0].traceback
    epochs = results[0].run.epochs
    assert [epoch.metrics["world"] for epoch in epochs] == [world_size] * 2
    assert epochs[-1].metrics["wrapped"] == (world_size > 1)
    assert results[0].run.metrics["steps"] == 2 * 8 // world_size


def test_the_fields_of_a_loop_are_the_keys_that_its_source_reads() -> None:
    specs = user_function_schema(f"{MODULE}:loop").specs
    assert specs["batch_size"].is_required
    assert specs["lr"].default == 1e-3
    assert "batch_size" not in user_function_schema(f"{MODULE}:without_config").specs


def test_a_loop_without_a_configuration_reports_too() -> None:
    config = user_function_schema(f"{MODULE}:without_config").make()
    assert run_inline(config, train=run_user_function).run.epochs[0].metrics["loss"] == 1.0


def test_datasets_of_ray_data_and_two_parameters_are_refused_in_one_line() -> None:
    config = user_function_schema(f"{MODULE}:with_dataset").make()
    result = run_inline(config, train=run_user_function)
    assert "a sweep gives no dataset of Ray Data" in result.reason
    with pytest.raises(ConfigError, match="or one or none, as a loop of Ray Train"):
        user_function_schema(f"{MODULE}:of_two")


def of_three(config: dict[str, Any], rank: Any, emit: Any) -> None: ...


@pytest.mark.parametrize(("function", "is_needed"), [("loop", True), ("without_config", True), ("of_three", False)])
def test_what_loops_import_is_imported_once_before_and_not_for_other_functions(function: str, is_needed: bool) -> None:
    train = f"{__name__}:{function}"
    libraries = UserFunctionWorkload(train).libraries(UserFunctionConfig(train=train))
    assert bool(libraries) == is_needed
    program = f"import sys; from dmls_ray.training.rank import preload; preload(libraries={libraries!r})"
    shown = f"{program}; print({OF_LOOPS!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(is_needed)
