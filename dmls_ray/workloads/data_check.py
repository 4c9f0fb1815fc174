"""Check that a rank reads the data that its sweep began with."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from dmls_ray.training.rank import RankInfo
from dmls_ray.util.errors import DataError
from dmls_ray.workloads.base import Workload

_found: dict[tuple[Any, ...], str] = {}
"""Fingerprints at the first run of this process that reads the data: it keeps what it has read for later runs."""


def check_data(workload: Workload, config: Any, rank: RankInfo) -> RankInfo:
    """Refuse data that differ from those that the driver has recorded for the run.

    Returns:
        The rank; the time of this check is no part of its run.

    Raises:
        DataError: with the data set and the machine.
    """
    from dmls_ray.training.process import wait_for_others

    began = time.perf_counter()
    expected = rank.identity.data
    data_sets = workload.data_sets(config) if expected else {}
    for name, arguments in data_sets.items():
        if name not in expected:
            continue
        if (key := (workload.name, *arguments)) not in _found:
            _found[key] = workload.fingerprint(*arguments)
        if _found[key] != expected[name]:
            raise DataError(
                f"{name} on machine {rank.machine} is not what this sweep began with; copy it to each machine, or "
                "share their folder. If they were changed since, run the same command again."
            )
    if expected:
        wait_for_others(rank)
    return replace(rank, instruments_s=rank.instruments_s + time.perf_counter() - began)
