"""Which machines of a cluster a sweep leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.trials.machine_speeds import MachineSpeed
from dmls_ray.cluster.resources import Machine, Resources
from dmls_ray.execution.slow_machines import leave_out_slower, remember_speeds
from dmls_ray.util.errors import ClusterError

CLUSTER = Resources(tuple(Machine(f"host-{number}", f"node-{number}", 8, 0) for number in (1, 2, 3)))
AS_FAST = MachineSpeed("host-1", 1, "a CPU", 5, Interval(1.1, 1.05, 1.15), None)
MEASURED = [
    AS_FAST,
    replace(AS_FAST, hosts="host-2", against_others=Interval(0.8, 0.7, 0.9)),
    replace(AS_FAST, hosts="host-3", against_others=Interval(0.8, 0.5, 1.2)),
    replace(AS_FAST, hosts="host-1 + host-2", against_others=Interval(0.5, 0.4, 0.6)),
    replace(AS_FAST, hosts="host-4", against_others=None),
]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path))


@pytest.mark.parametrize(("share", "expected"), [(0.05, {"node-2"}), (0.09, {"node-2"}), (0.2, set())])
def test_a_machine_that_is_slower_beyond_chance_is_left_out(share: float, expected: set[str]) -> None:
    remember_speeds(MEASURED)
    said: list[str] = []
    assert leave_out_slower(CLUSTER, share, said.append) == expected
    assert [line.split()[0] for line in said] == ["host-2"] * len(expected)
    assert [machine.name for machine in CLUSTER.without(expected).machines] == (
        ["host-1", "host-3"] if expected else ["host-1", "host-2", "host-3"]
    )


def test_a_machine_is_judged_by_the_last_measurement() -> None:
    remember_speeds(MEASURED)
    remember_speeds([replace(MEASURED[1], against_others=Interval(1.0, 0.99, 1.01))])
    assert leave_out_slower(CLUSTER, 0.05, print) == set()


def test_a_cluster_that_doctor_has_not_seen_is_refused() -> None:
    with pytest.raises(ClusterError, match="dmls-ray doctor"):
        leave_out_slower(CLUSTER, 0.05, print)
