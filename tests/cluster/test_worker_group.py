"""What machines and threads do to the worker group, without Ray: trainers and the broker are stand-ins here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
import ray

from dmls_ray.cluster.node_trainer import NodeTrainer
from dmls_ray.cluster.placement import RankRequest, WorkerGroupSpec
from dmls_ray.cluster.resources import Machine, Resources
from dmls_ray.cluster.worker_group import WorkerGroup
from dmls_ray.config.run_limits import RunLimits
from dmls_ray.util.errors import ClusterLostError


class Line:
    """Records the calls of the broker."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.controllers: dict[str, Any] = {}
        self.refusals: dict[str, str] = {}

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        if method == "known_controllers":
            return self.controllers
        if method == "refusals":
            return self.refusals
        self.calls.append((method, *args, options))
        return ""


class Trainer:
    """Ends as the test wants it to."""

    def __init__(self, fit: Callable[[], None]) -> None:
        self.fit = fit


def cluster(*cores: int) -> Resources:
    return Resources(tuple(Machine(f"host-{n}", f"node-{n}", count, 0) for n, count in enumerate(cores, start=1)))


@pytest.fixture
def made() -> Iterator[list[WorkerGroup]]:
    groups: list[WorkerGroup] = []
    with patch("dmls_ray.cluster.worker_group.check_machines", lambda resources: None):
        yield groups
    for group in groups:
        group._storage.remove()


def group_on(
    made: list[WorkerGroup], resources: Resources, *needs: RankRequest, isolation: str = "group", **more: Any
) -> tuple[WorkerGroup, Line]:
    demand = WorkerGroupSpec(needs=needs, device="cpu", **more)
    notes: list[str] = []
    group = WorkerGroup(
        resources, demand, isolation=isolation, private_cluster=False, limits=RunLimits(), notify=notes.append
    )  # fmt: skip
    made.append(group)
    line = Line()
    group.broker = line  # type: ignore[assignment]
    return group, line


def test_ranks_that_hold_all_cores_are_joined_by_no_more_when_another_machine_leaves(made: list[WorkerGroup]) -> None:
    # They would wait for room for ever, and runs for them.
    group, line = group_on(made, cluster(2, 2), RankRequest(world_size=8), oversubscribe=True)
    group._plan_missing(later=False)
    assert [(node.ranks, node.per_rank) for node in group._nodes] == [(4, {"CPU": 0.5})] * 2
    with patch.object(group, "_start_node"):
        group._reconcile(cluster(2))
    assert [name for name, *_ in line.calls] == ["end_trainer"]
    assert len(group._nodes) == 2


def test_a_trainer_that_fails_on_a_machine_that_came_later_leaves_that_out_and_the_sweep_alone(
    made: list[WorkerGroup],
) -> None:
    def fails() -> None:
        raise ValueError("no")

    group, line = group_on(made, cluster(1), RankRequest(world_size=1), RankRequest(world_size=2))
    group._plan_missing(later=False)
    with (
        patch("dmls_ray.cluster.node_trainer.GroupTrainer", lambda *args, **options: Trainer(fails)),
        patch("dmls_ray.cluster.node_trainer.BrokerClient", lambda name: line),
        patch("os.getcwd", lambda: "/"),
    ):
        group._reconcile(cluster(1, 1))
        thread = group._nodes[1].thread
        assert thread is not None
        thread.join(10)
    assert [name for name, *_ in line.calls] == ["expect", "trainer_failed"]
    assert line.calls[-1][2].endswith("worker group failed: no")
    line.refusals = {group._nodes[1].name: "no"}
    group._exclude_refused()
    assert [node.departed for node in group._nodes] == [False, True]
    group._reconcile(cluster(1, 1))
    assert len(group._nodes) == 2, "it is not tried again at each look"


def test_a_trainer_whose_machine_leaves_while_it_starts_is_ended_once_its_controller_is_known(
    made: list[WorkerGroup],
) -> None:
    group, line = group_on(made, cluster(1, 1), RankRequest(world_size=2))
    group._plan_missing(later=False)
    killed: list[Any] = []
    with patch.object(ray, "kill", killed.append), patch.object(NodeTrainer, "is_running", new=True):
        group._reconcile(cluster(1))
        assert not killed
        line.controllers = {group._nodes[1].name: "its controller"}
        group._reconcile(cluster(1))
    assert killed == ["its controller"]
    assert [name for name, *_ in line.calls] == ["end_trainer"], "once"


@pytest.mark.parametrize("error", [ray.exceptions.ActorDiedError, ray.exceptions.GetTimeoutError, ValueError])
def test_a_sweep_ends_also_if_its_broker_is_gone_or_stopped(made: list[WorkerGroup], error: type[Exception]) -> None:
    group, line = group_on(made, cluster(1), RankRequest(world_size=1))
    killed: list[Any] = []
    group._actor = "its actor"

    def call(method: str, timeout: float | None = None) -> None:
        assert timeout is not None, "it would wait for ever"
        raise error

    with patch.object(line, "call", call), patch.object(ray, "kill", killed.append):
        group.__exit__(KeyboardInterrupt)
    assert killed == ["its actor"]


def test_after_the_loss_of_the_cluster_nothing_of_ray_is_called(made: list[WorkerGroup]) -> None:
    group, line = group_on(made, cluster(1), RankRequest(world_size=1))
    with patch.object(ray, "kill", side_effect=AssertionError):
        group.__exit__(ClusterLostError)
    assert not line.calls


def test_the_death_of_the_broker_ends_the_sweep(made: list[WorkerGroup]) -> None:
    group, _ = group_on(made, cluster(1), RankRequest(world_size=1))
    with (
        patch.object(ray, "wait", lambda refs, timeout: (refs, [])),
        patch.object(ray, "get", side_effect=ray.exceptions.ActorDiedError),
        pytest.raises(ClusterLostError, match="broker"),
    ):
        group.check()
