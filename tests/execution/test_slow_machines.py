"""Which machines of a cluster a sweep leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.trials.machine_speeds import MachineSpeed
from dmls_ray.cluster.resources import Machine, Resources
from dmls_ray.execution.slow_machines import remember_speeds, slower_machines
from dmls_ray.util.errors import ClusterError

CLUSTER = Resources(tuple(Machine(f"host-{number}", f"node-{number}", 8, 0) for number in (1, 2, 3)))
AS_FAST = MachineSpeed("host-1", 1, "a CPU", 5, Interval(1.1, 1.05, 1.15), None)
SLOW = replace(AS_FAST, hosts="host-2", against_others=Interval(0.8, 0.7, 0.9))
MEASURED = [
    AS_FAST,
    SLOW,
    replace(AS_FAST, hosts="host-3", against_others=Interval(0.8, 0.5, 1.2)),
    replace(AS_FAST, hosts="host-1 + host-2", against_others=Interval(0.5, 0.4, 0.6)),
    replace(AS_FAST, hosts="host-4", against_others=None),
]


def names_of(resources: Resources) -> list[str]:
    return [machine.name for machine in resources.machines]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path))


@pytest.mark.parametrize(("share", "expected"), [(0.05, {"host-2"}), (0.09, {"host-2"}), (0.2, set())])
def test_a_machine_that_is_slower_beyond_chance_is_left_out(share: float, expected: set[str]) -> None:
    remember_speeds(MEASURED)
    said: list[str] = []
    assert {*names_of(CLUSTER)} & slower_machines(CLUSTER, share, said.append) == expected
    assert [line.split()[0] for line in said] == ["host-2"] * len(expected)
    assert names_of(CLUSTER.without(expected)) == [name for name in names_of(CLUSTER) if name not in expected]


def test_a_slower_machine_that_joins_later_is_left_out_too() -> None:
    remember_speeds([AS_FAST, replace(SLOW, hosts="host-9")])
    assert "host-9" in slower_machines(CLUSTER, 0.05, pytest.fail)


def test_a_machine_is_judged_by_its_last_measurement_with_an_interval() -> None:
    remember_speeds(MEASURED)
    remember_speeds([replace(SLOW, against_others=Interval(1.0, None, None))])
    assert "host-2" in slower_machines(CLUSTER, 0.05, lambda text: None)
    remember_speeds([replace(SLOW, against_others=Interval(1.0, 0.99, 1.01))])
    assert "host-2" not in slower_machines(CLUSTER, 0.05, pytest.fail)


def test_lanes_of_one_machine_and_machines_of_one_name_are_no_machine() -> None:
    remember_speeds([AS_FAST, SLOW, replace(SLOW, lane=3)])
    assert slower_machines(CLUSTER, 0.05, pytest.fail) == set()


def test_a_cluster_that_doctor_has_not_seen_or_of_slow_machines_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"--leave-out-slower 0.1%: .* dmls-ray doctor"):
        slower_machines(CLUSTER, 0.001, print)
    remember_speeds([replace(SLOW, hosts=name) for name in names_of(CLUSTER)])
    with pytest.raises(ClusterError, match="all machines"):
        slower_machines(CLUSTER, 0.05, print)
    for text in (b"[]", b'{"host-1": 3}', b"{" * 200_000, b'{"\xff": 1}'):
        (tmp_path / "machine_speeds.json").write_bytes(text)
        with pytest.raises(ClusterError, match="dmls-ray doctor"):
            slower_machines(CLUSTER, 0.05, print)


def test_a_cache_that_cannot_be_written_is_told_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path / "file"))
    remember_speeds(MEASURED)
    assert "machine_speeds.json cannot be written" in capsys.readouterr().err
