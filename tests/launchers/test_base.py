"""The launchers: one module each, named in a table that configurations read."""

from __future__ import annotations

import importlib
import pkgutil
from typing import get_args

import pytest

from dmls_ray import launchers
from dmls_ray.config.runtime import LauncherName, RuntimeConfig
from dmls_ray.launchers.base import Launcher, infeasible_reason, launcher

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
