"""What machines and threads do to the worker group, without Ray: trainers and the broker are stand-ins here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock, patch

import pytest
import ray

from dmls_ray.cluster.node_trainer import NodeTrainer
from dmls_ray.cluster.placement import RankRequest, WorkerGroupSpec
from dmls_ray.cluster.resources import Machine, Resources
from dmls_ray.cluster.worker_group import WorkerGroup
from dmls_ray.config.run_limits import RunLimits


class Line:
    """Records the calls of the broker."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.controllers: dict[str, Any] = {}
        self.served: set[str] = set()

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        if method == "trainers":
            return self.controllers, self.served
        self.calls.append((method, *args, options))
        return ""

    call_once = call


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
    group._places = {machine.name: place for place, machine in enumerate(resources.machines)}
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


def test_where_each_run_brings_its_trainer_a_machine_that_has_come_is_not_filled_with_ranks(
    made: list[WorkerGroup],
) -> None:
    group, line = group_on(made, cluster(2, 2), RankRequest(world_size=2), isolation="per_run")
    with patch.object(group, "_start_node"):
        group.resize(WorkerGroupSpec(needs=(RankRequest(world_size=4),), device="cpu"))
    assert not group._nodes
    assert not line.calls


def test_a_trainer_that_fails_on_a_machine_that_came_later_leaves_that_out_and_the_sweep_alone(
    made: list[WorkerGroup],
) -> None:
    def fails() -> None:
        raise ValueError("no")

    group, line = group_on(made, cluster(1), RankRequest(world_size=1), RankRequest(world_size=2))
    group._plan_missing(later=False)
    with (
        patch("dmls_ray.cluster.node_trainer.make_trainer", lambda *args, **options: Trainer(fails)),
        patch.object(WorkerGroup, "_start_node", WorkerGroup._run_trainer),
        patch("os.getcwd", lambda: "/"),
    ):
        group._reconcile(cluster(1, 1))
    methods = [name for name, *_ in line.calls]
    assert methods == ["expect", "trainer_failed"]
    assert line.calls[-1][2].endswith("worker group failed: no")
    # Neither is it tried again at each look, nor would another broker wait for it.
    assert [node.departed for node in group._nodes] == [False, True]
    group._reconcile(cluster(1, 1))
    assert len(group._nodes) == 2


@pytest.mark.parametrize("reason", ["host-2: there is no folder /data", "host-2: there is no folder /data."])
def test_the_note_about_a_machine_that_is_left_out_has_one_full_stop_after_its_reason(
    made: list[WorkerGroup], reason: str
) -> None:
    group, _ = group_on(made, cluster(1, 1), RankRequest(world_size=2))
    group._plan_missing(later=True)
    with patch.object(group, "notify") as notify:
        group._exclude(group._nodes[1], reason)
    notify.assert_called_once_with("host-2: there is no folder /data. host-2 is left out.")


def test_a_trainer_whose_machine_leaves_while_it_starts_is_ended_once_its_controller_is_known(
    made: list[WorkerGroup],
) -> None:
    group, line = group_on(made, cluster(1, 1), RankRequest(world_size=2))
    group._plan_missing(later=False)
    killed: list[Any] = []
    with patch.object(ray, "kill", killed.append), patch.object(NodeTrainer, "is_running", new=True):
        group._reconcile(cluster(1))
        assert not killed
        line.controllers = {group._nodes[1].trainer: "its controller"}
        group._stop_departed()
    assert killed == ["its controller"]
    assert [name for name, *_ in line.calls] == ["end_trainer"], "once"


def test_a_failed_notification_of_the_broker_is_repeated_at_the_next_look(made: list[WorkerGroup]) -> None:
    group, line = group_on(made, cluster(1, 1), RankRequest(world_size=2))
    group._plan_missing(later=False)
    with (
        patch.object(line, "call", side_effect=ray.exceptions.RayActorError),
        pytest.raises(ray.exceptions.RayActorError),
    ):
        group._reconcile(cluster(1))
    group._reconcile(cluster(1))
    group._stop_departed()
    assert [name for name, *_ in line.calls] == ["end_trainer"]


def test_a_new_broker_learns_which_machines_have_served(made: list[WorkerGroup]) -> None:
    # Else runs would start while a rank of a machine that joined later is in a run of the broker that died.
    group, line = group_on(made, cluster(1, 1), RankRequest(world_size=2))
    group._plan_missing(later=False)
    first, second = (node.trainer for node in group._nodes)
    line.served = {second}
    group.note_trainers()
    assert {name: item.has_served for name, item in group._expected().items()} == {first: False, second: True}
    assert [item.machine for item in group._expected().values()] == ["host-1", "host-2"]


def test_a_new_broker_learns_the_controllers_that_the_driver_knows(made: list[WorkerGroup]) -> None:
    # Else it could stop no controller whose ranks do not come back.
    group, line = group_on(made, cluster(1), RankRequest(world_size=1))
    with (
        patch("dmls_ray.cluster.worker_group.BrokerSupervisor") as supervisor,
        patch("dmls_ray.cluster.worker_group._start_thread"),
    ):
        group.start()
    assert supervisor.call_args.kwargs["controllers"]() == {}
    line.controllers = {group._nodes[0].trainer: "its controller"}
    group.note_trainers()
    assert supervisor.call_args.kwargs["controllers"]() == line.controllers


def test_the_broker_is_not_asked_for_trainers_that_are_all_known(made: list[WorkerGroup]) -> None:
    group, line = group_on(made, cluster(1), RankRequest(world_size=1))
    group._plan_missing(later=False)
    line.controllers, line.served = {group._nodes[0].trainer: "its controller"}, {group._nodes[0].trainer}
    group.note_trainers()
    with patch.object(line, "call", side_effect=AssertionError):
        group.note_trainers()


def test_a_sweep_ends_at_once_also_if_its_broker_is_gone(made: list[WorkerGroup]) -> None:
    group, line = group_on(made, cluster(1), RankRequest(world_size=1))
    group._plan_missing(later=False)
    controller = Mock()
    group._controllers = {group._nodes[0].trainer: controller}
    group._ended.set()
    with (
        patch.object(line, "call_once", side_effect=ray.exceptions.ActorDiedError),
        patch.object(line, "call", side_effect=AssertionError("it would wait for another broker")),
    ):
        group._end_trainers(cut_short=True, until=0.0)
    controller.abort.remote.assert_called_once_with()


def test_a_sweep_ends_also_if_its_broker_is_stopped_and_answers_nothing(made: list[WorkerGroup]) -> None:
    group, line = group_on(made, cluster(1), RankRequest(world_size=1))
    group._plan_missing(later=False)
    controller = Mock()
    group._controllers = {group._nodes[0].trainer: controller}
    group._ended.set()

    def call_once(method: str, timeout: float | None = None) -> None:
        assert timeout is not None, "it would wait for ever, since no other takes its place now"
        raise ray.exceptions.GetTimeoutError

    with patch.object(line, "call_once", call_once):
        group._end_trainers(cut_short=True, until=0.0)
    controller.abort.remote.assert_called_once_with()
