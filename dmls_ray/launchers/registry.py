"""The launchers by name."""

from __future__ import annotations

import importlib

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.base import Launcher


def launcher(name: str) -> Launcher:
    """The launcher of this name; not `ray`, which is the worker group."""
    found: Launcher = importlib.import_module(f"dmls_ray.launchers.{name}").LAUNCHER
    return found


def infeasible_reason(config: RuntimeConfig) -> str:
    """Why the configuration's launcher cannot be used here, and the way out; empty if it can."""
    return "" if config.launcher == "ray" else launcher(config.launcher).infeasible_reason(config)
