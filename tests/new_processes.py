"""Runs without Ray: in this process, in fresh ones, and in new ones that start in milliseconds, not in seconds."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any
from unittest import mock

from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.base import JobFolder, LaunchedJob, Rendezvous, rank_here
from dmls_ray.launchers.spawn import Spawn
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.error_to_outcome import run_guarded
from dmls_ray.training.process import VARIABLES
from dmls_ray.training.rank import ArtifactOptions, Emit, TrainFunction
from dmls_ray.util.files import TemporaryFolder
from dmls_ray.workloads.classification.train import train_rank

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.preloaded"])
"""Starts processes that are forks of one that has only loaded libraries."""


def run_inline(
    config: RuntimeConfig,
    *,
    train: TrainFunction | None = None,
    emit: Emit = lambda event: None,
    identity: Identity | None = None,
    artifacts: ArtifactOptions | None = None,
) -> RankResult:
    """Run a configuration of world size 1 in this process; returns the result of its only rank."""
    job = LaunchedJob(config, "", identity or Identity(), artifacts, [])
    return run_guarded(train or train_rank, config, rank_here(job, Rendezvous(0, None)), emit)


def run_spawned(
    config: RuntimeConfig,
    *,
    train: TrainFunction | None = None,
    identity: Identity | None = None,
    artifacts: ArtifactOptions | None = None,
    emit: Emit = lambda event: None,
) -> list[RankResult]:
    """Run a configuration in fresh processes, one per rank; returns their results, in the order of ranks.

    Args:
        config: the configuration.
        train: the training function; it must be importable by its name.
        identity: the code and the data of the run.
        artifacts: files that the run leaves next to its result.
        emit: takes rank 0's events, when the run has ended.
    """
    with TemporaryFolder("run") as path:
        folder = JobFolder(path)
        job = LaunchedJob(config, train or train_rank, identity or Identity(), artifacts, [])
        Spawn().run(folder, job)
        folder.pass_on_events(emit)
        results = [folder.read_result(number) for number in range(config.world_size)]
    return [result for result in results if result is not None]


def run_ranks(config: RuntimeConfig, *, train: TrainFunction | None = None, **options: Any) -> list[RankResult]:
    """Do what `run_spawned` does, with ranks that are forks of a process that has only loaded PyTorch.

    tests/launchers/test_spawn.py starts ranks in fresh interpreters.
    """
    prepared = functools.partial(_in_environment, dict(os.environ), train or train_rank)
    with mock.patch("multiprocessing.get_context", return_value=FORKS):
        return run_spawned(config, train=prepared, **options)


def call_in_new_process(function: Callable[[], Any]) -> Any:
    """Return what a function of a module returns in a new process, or raise its error."""
    with ProcessPoolExecutor(1, mp_context=FORKS) as pool:
        return pool.submit(_in_environment, dict(os.environ), function).result(timeout=120)


def _in_environment(environment: dict[str, str], function: Callable[..., Any], *arguments: Any) -> Any:
    # The process that forks the new ones keeps the environment of its own start.
    of_run = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    os.environ.clear()
    os.environ.update({**environment, **of_run})
    return function(*arguments)
