"""Checks and data that runs need before ranks start, as far as their workloads define them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dmls_ray.config.grid import Run
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import workload_of


def check_names(runs: Sequence[Run]) -> None:
    """Refuse names that do not exist, before anything starts.

    Raises:
        InputError: as `Workload.check`.
    """
    for workload, configs in _by_workload(runs):
        workload.check(configs)


def prepare(runs: Sequence[Run], notify: Callable[[str], None]) -> None:
    """Prepare the data once on this machine, so that bad data are reported in one line before Ray starts.

    Raises:
        InputError: as `Workload.prepare`.
    """
    for workload, configs in _by_workload(runs):
        workload.prepare(configs, notify)


def wanted_data(runs: Sequence[Run]) -> tuple[tuple[Any, ...], ...]:
    """Workload and arguments of each data set that ranks need prepared."""
    return tuple(
        (workload.name, *arguments)
        for workload, configs in _by_workload(runs)
        for arguments in workload.cached_data(configs)
    )


def _by_workload(runs: Sequence[Run]) -> Iterator[tuple[Workload, list[RuntimeConfig]]]:
    """Each workload with the configurations of its runs."""
    groups: dict[str, tuple[Workload, list[RuntimeConfig]]] = {}
    for run in runs:
        if run.config is not None:
            workload = workload_of(run.values)
            groups.setdefault(workload.name, (workload, []))[1].append(run.config)
    yield from groups.values()
