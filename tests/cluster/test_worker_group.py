"""What machines and threads do to the worker group. The broker is a stand-in, except in the last test."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import ray

from dmls_ray.cluster.node_trainer import NodeTrainer
from dmls_ray.cluster.resources import Machine, RankRequest, Resources, WorkerGroupSpec
from dmls_ray.cluster.worker_group import WorkerGroup
from dmls_ray.config.options import RunLimits
from tests.conftest import PROJECT, call, without_ray


class Line:
    """Records the calls of the broker."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.controllers: dict[str, Any] = {}

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        if method == "known_controllers":
            return self.controllers
        self.calls.append((method, *args, options))
        return ""


def cluster(*cores: int) -> Resources:
    return Resources(tuple(Machine(f"host-{n}", f"node-{n}", count, 0) for n, count in enumerate(cores, start=1)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SimpleNamespace(path=tmp_path, remove=lambda: None)
    monkeypatch.setattr("dmls_ray.cluster.worker_group.TemporaryFolder", lambda name: folder)


def group_on(resources: Resources, world_size: int, **more: Any) -> tuple[WorkerGroup, Line]:
    demand = WorkerGroupSpec(needs=(RankRequest(world_size=world_size),), device="cpu", **more)
    group = WorkerGroup(resources, demand, private_cluster=False, limits=RunLimits())
    group.broker = line = Line()  # type: ignore[assignment]
    return group, line


def test_ranks_that_hold_all_cores_are_joined_by_no_more_when_another_machine_leaves() -> None:
    # They would wait for room for ever, and runs for them.
    group, line = group_on(cluster(2, 2), 8, oversubscribe=True)
    group._plan_missing(later=False)
    assert [(node.ranks, node.per_rank) for node in group._nodes] == [(4, {"CPU": 0.5})] * 2
    with patch.object(NodeTrainer, "start"):
        group._reconcile(cluster(2))
    assert [name for name, *_ in line.calls] == ["end_trainer"]
    assert len(group._nodes) == 2


def test_a_sweep_waits_for_the_first_lane_alone() -> None:
    demand = WorkerGroupSpec(needs=(RankRequest(world_size=2),), device="cpu")
    group = WorkerGroup(cluster(2, 2, 2), demand, private_cluster=False, limits=RunLimits(), lanes="auto")
    group.broker = Line()  # type: ignore[assignment]
    group._plan_missing(later=False)
    assert [(node.lane, node.expected.is_optional) for node in group._nodes] == [(1, False), (2, True), (3, True)]


def test_a_trainer_whose_machine_leaves_while_it_starts_is_ended_once_its_controller_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group, line = group_on(cluster(1, 1), 2)
    group._plan_missing(later=False)
    killed: list[Any] = []
    freed: list[Any] = []
    monkeypatch.setattr(NodeTrainer, "is_running", True)
    monkeypatch.setattr("dmls_ray.cluster.node_trainer.free_places_of", freed.append)
    with patch.object(ray, "kill", killed.append):
        group._reconcile(cluster(1))
        assert not killed
        line.controllers = {group._nodes[1].name: "its controller"}
        group._reconcile(cluster(1))
    assert killed == freed == ["its controller"]
    assert [name for name, *_ in line.calls] == ["end_trainer"], "once"


@pytest.mark.parametrize("error", [ray.exceptions.ActorDiedError, ray.exceptions.GetTimeoutError, ValueError])
def test_a_sweep_ends_also_if_its_broker_is_gone_or_stopped(error: type[Exception]) -> None:
    group, line = group_on(cluster(1), 1)
    killed: list[Any] = []
    group._actor = "its actor"

    def call(method: str, timeout: float | None = None) -> None:
        assert timeout is not None, "it would wait for ever"
        raise error

    with patch.object(line, "call", call), patch.object(ray, "kill", killed.append):
        group.__exit__(KeyboardInterrupt)
    assert killed == ["its actor"]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["group._end(cut_short=True)", "group._nodes[0].kill(group.broker)"])
def test_ranks_that_are_ended_while_they_start_return_their_cores_to_a_cluster_that_goes_on(
    tmp_path: Path, end: str
) -> None:
    code = f"""
import time
import ray
from dmls_ray.cluster.resources import RankRequest, WorkerGroupSpec, cluster_resources
from dmls_ray.cluster.worker_group import WorkerGroup
from dmls_ray.config.options import RunLimits

def wait_for(cores):
    until = time.monotonic() + 60
    while ray.available_resources().get("CPU") != cores and time.monotonic() < until:
        time.sleep(0.01)

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
demand = WorkerGroupSpec(needs=(RankRequest(world_size=1),), device="cpu")
group = WorkerGroup(cluster_resources(), demand, private_cluster=True, limits=RunLimits())
group.__enter__()
wait_for(1)
{end}
wait_for(2)
print("free", ray.available_resources()["CPU"])
"""
    done = call([sys.executable, "-c", code], tmp_path, env=without_ray(PYTHONPATH=str(PROJECT)))
    assert done.stdout.splitlines()[-1] == "free 2.0", done.stderr
