"""Ranks of a run in new processes that start in milliseconds, where a fresh interpreter loads PyTorch for seconds."""

from __future__ import annotations

import functools
import multiprocessing
import os
from typing import Any
from unittest import mock

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.spawn import run_spawned
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import Emit, RankInfo, TrainFunction
from dmls_ray.workloads.registry import default_entrypoint

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.training.preloaded"])


def run_ranks(config: RuntimeConfig, *, train: TrainFunction | None = None, **options: Any) -> list[RankResult]:
    """Do what `run_spawned` does, with ranks that are forks of a process that has only loaded PyTorch.

    tests/launchers/test_spawn.py starts ranks in fresh interpreters.
    """
    prepared = functools.partial(_train, train or default_entrypoint(), dict(os.environ))
    with mock.patch("multiprocessing.get_context", return_value=_CONTEXT):
        return run_spawned(config, train=prepared, **options)


def _train(
    train: TrainFunction, environment: dict[str, str], config: RuntimeConfig, rank: RankInfo, emit: Emit
) -> dict[str, Any]:
    # The process that forks the ranks keeps the environment of its own start.
    os.environ.clear()
    os.environ.update(environment)
    return train(config, rank, emit)
