"""The launchers: one module each, named in a table that configurations read."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, get_args

import pytest
import torch.distributed as dist

from dmls_ray import launchers
from dmls_ray.config.runtime import LauncherName, RuntimeConfig
from dmls_ray.launchers.base import Launcher, infeasible_reason, launcher
from dmls_ray.records.outcome import Outcome
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.new_processes import run_ranks

LAUNCHERS = {*get_args(LauncherName)}


def test_the_choices_of_the_flag_are_the_modules_that_are_launchers() -> None:
    names = [module.name for module in pkgutil.iter_modules(launchers.__path__) if module.name != "__main__"]
    modules = {name: importlib.import_module(f"{launchers.__name__}.{name}") for name in names}
    assert {name for name, module in modules.items() if hasattr(module, "LAUNCHER")} == LAUNCHERS - {"ray"}


@pytest.mark.parametrize("name", sorted(LAUNCHERS - {"ray"}))
def test_every_launcher_has_a_command(name: str) -> None:
    assert isinstance(launcher(name), Launcher)
    if not infeasible_reason(RuntimeConfig(launcher=name)):
        command = launcher(name).command(RuntimeConfig(launcher=name), ["-m", "dmls_ray.launchers", "folder"])
        assert command[-3:] == ["-m", "dmls_ray.launchers", "folder"]


def spoils_the_end_of_its_group(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, float]:
    def fail() -> None:
        raise OSError("connection reset")

    dist.destroy_process_group = fail
    return {"score": 3.0}


def test_a_process_group_that_cannot_be_unmade_takes_no_result_away() -> None:
    config = user_function_schema(spoils_the_end_of_its_group, []).make(world_size=2, device="cpu")
    results = run_ranks(config, train=run_user_function)
    assert [(result.outcome, result.run.reported["score"]) for result in results] == [(Outcome.OK, 3.0)] * 2
