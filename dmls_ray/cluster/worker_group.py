"""The worker group: a broker, and one TorchTrainer per machine that holds its ranks while the machine is there."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dmls_ray.cluster.broker_client import BrokerClient
from dmls_ray.cluster.compat import free_places_of
from dmls_ray.cluster.connect import NAMESPACE
from dmls_ray.cluster.joining import check_machines
from dmls_ray.cluster.lane_plan import LaneCount, lanes_on, plan_lanes
from dmls_ray.cluster.messages import TrainerSettings
from dmls_ray.cluster.node_trainer import NO_ANSWER, NodeTrainer, controllers
from dmls_ray.cluster.processes import end_process_there, oom_kills_there
from dmls_ray.cluster.resources import Machine, Resources, WorkerGroupSpec, cluster_resources
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.options import RunLimits
from dmls_ray.records.model import FIRST_LANE
from dmls_ray.util.errors import ClusterError, ClusterLostError
from dmls_ray.util.files import TemporaryFolder
from dmls_ray.util.importing import module_path
from dmls_ray.util.text import first_line

ANSWER_TIMEOUT_S = 5.0
"""How long the broker may take to answer at the end of the sweep."""


LOST_TIMEOUT_S = 3.0
"""How long the threads of trainers may take to see that the processes of a lost cluster have ended."""


class WorkerGroup:
    """The ranks of one sweep, from its start to its end; a context manager.

    It holds no more of a cluster than the largest run needs. A machine that joins is used if ranks are missing; the
    ranks of a machine that leaves are gone with it.

    Args:
        resources: what the cluster has.
        demand: what the runs ask for.
        private_cluster: whether the cluster ends with the sweep, and has this machine alone.
        limits: timeouts, retries and the memory of ranks.
        exclusive: whether runs of a lane go one at a time.
        lanes: how many lanes there may be.
        left_out: names of machines that are not used, also if they join later.
        end_workers: ends all worker processes of a lost cluster of this sweep alone; returns whether it could.
        notify: takes a message for the user.
    """

    def __init__(
        self,
        resources: Resources,
        demand: WorkerGroupSpec,
        *,
        private_cluster: bool,
        limits: RunLimits,
        exclusive: bool = True,
        lanes: LaneCount = 1,
        left_out: Collection[str] = (),
        end_workers: Callable[[], bool] = lambda: False,
        notify: Callable[[str], None] = print,
    ) -> None:
        self.resources, self._demand = resources, demand
        self._private_cluster, self.limits = private_cluster, limits
        self._exclusive, self._notify = exclusive, notify
        self._most_lanes = lanes
        self._lanes = plan_lanes(resources, demand, lanes)
        self._kinds = {machine.node_id: machine.kind for machine in resources.machines}
        self.name = f"dmls-ray-{uuid.uuid4().hex[:8]}"
        self._nodes: list[NodeTrainer] = []
        self._places = {machine.name: place for place, machine in enumerate(resources.machines)}
        """Position of each machine in the order in which runs take machines; later machines come last."""
        self._end_workers = end_workers
        self._working_dir, self._module_path = os.getcwd(), module_path()
        self._left_out = left_out
        self._refused: set[str] = set()
        """Nodes on which no further ranks are started, since they cannot serve there."""

    def __enter__(self) -> WorkerGroup:
        """Start the broker and the trainers; ranks join as they come up."""
        self._plan_missing(later=False)
        # On this machine, so that it does not leave with another.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._actor = (
            ray.remote(Broker)
            .options(name=self.name, namespace=NAMESPACE, num_cpus=0, max_concurrency=10_000, scheduling_strategy=here)
            .remote(
                {node.name: node.expected for node in self._nodes},
                exclusive=self._exclusive,
                limits=self.limits,
                end_process=end_process_there,
                oom_kills_on=oom_kills_there,
            )
        )
        self.broker = BrokerClient(self.name, self._actor)
        # Its result never comes, as long as the broker lives.
        self._death = self._actor.wait_for_death.remote()
        for node in self._nodes:
            node.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the ranks and their trainers.

        After the loss of a cluster no call to Ray is made, which may not return. Threads that wait for a worker process
        would end this process when Ray's connection ends, so the workers end first.
        """
        is_lost = kind is not None and issubclass(kind, (ClusterLostError, ray.exceptions.RayError))
        try:
            if not is_lost:
                self._end(cut_short=kind is not None)
            else:
                self._leave_lost()
        except ray.exceptions.RayError as error:
            print(f"Ray went away before the worker group was ended: {first_line(error)}", file=sys.stderr)
        finally:
            self._storage.remove()

    def _leave_lost(self) -> None:
        """End the worker processes, where that is possible, and wait until no thread of a trainer waits for them."""
        for node in self._nodes:
            node.is_over = True
        until = time.monotonic() + (LOST_TIMEOUT_S if self._end_workers() else 0.0)
        for node in self._nodes:
            if node.thread is not None:
                node.thread.join(max(0.0, until - time.monotonic()))

    @cached_property
    def _storage(self) -> TemporaryFolder:
        """Where Train and Tune write their state. Nothing is read from it, so it is removed with the sweep."""
        return TemporaryFolder("ray")

    @property
    def storage(self) -> str:
        """Path of a folder for what Train and Tune write."""
        return str(self._storage.path)

    def serves_as(self, other: WorkerGroup) -> bool:
        """Whether these ranks serve the runs of another group, which has not started, as its own would."""
        ours, theirs = (
            (
                replace(group._demand, needs=()),
                (group._working_dir, group._module_path),
                [getattr(group.limits, item.name) for item in fields(RunLimits)],
                plan_lanes(self.resources, group._demand, group._most_lanes),
            )
            for group in (self, other)
        )
        return ours == theirs

    @property
    def holds_gpus(self) -> bool:
        """Whether each rank holds a GPU."""
        return self._demand.device == "cuda"

    @property
    def ranks(self) -> int:
        """How many ranks the present machines hold for the sweep."""
        return sum(sum(lane.values()) for lane in self._lanes.values())

    @property
    def lanes(self) -> int:
        """How many lanes there are."""
        return len(self._lanes)

    @property
    def lanes_of_a_machine(self) -> int:
        """How many lanes are on one machine, at most."""
        return max(len(lanes_on(self._lanes, machine.name)) for machine in self.resources.machines)

    @property
    def shares_machines(self) -> bool:
        """Whether several lanes are on one machine, so that runs may slow each other down."""
        return self.lanes_of_a_machine > 1

    def end_block(self, block: int) -> None:
        """Free the lane of a block whose runs have all ended."""
        self.broker.submit("end_block", block)

    def per_rank(self, machine: Machine) -> dict[str, float]:
        """Ray resources a rank on a machine holds: a core (a part of one where ranks are more), and its GPU."""
        wanted = sum(lane.get(machine.name, 0) for lane in self._lanes.values())
        most = wanted / machine.cores if machine.cores else 1.0
        # Rounded down to what Ray can count, so that all ranks fit.
        cpu = 1.0 if most <= 1 else int(1000 / most) / 1000
        return {"CPU": cpu} | ({"GPU": 1.0} if self._demand.device == "cuda" else {})

    def settings(self, trainer: str) -> TrainerSettings:
        """The settings of a trainer and its ranks."""
        return TrainerSettings(
            broker=self.name,
            trainer=trainer,
            storage=self.storage,
            working_dir=self._working_dir,
            module_path=self._module_path,
            machine_names={machine.node_id: machine.name for machine in self.resources.machines},
            machine_order=dict(self._places),
            data=tuple(self._demand.data),
            user_code_entry=self._demand.user_code_entry,
            preload=self._demand.preload,
        )

    def check(self) -> None:
        """Adapt the trainers to the machines that are there now.

        Raises:
            ClusterLostError: the broker died.
        """
        if ray.wait([self._death], timeout=0)[0]:
            raise ClusterLostError("The scheduler's process (broker) died")
        if self._private_cluster:
            return
        self._exclude_refused()
        self._reconcile(cluster_resources().without(self._left_out))

    def _end(self, *, cut_short: bool) -> None:
        """End the ranks and their trainers, and wait for it.

        A thread that still waits for Ray when it is shut down could take the whole process along, and leave Ray's
        processes behind.

        Args:
            cut_short: some ranks may be busy, so their trainers are aborted, which also frees what they hold of a
                cluster that goes on; else all are idle, and leave by themselves, which Train sees a second later. On a
                cluster of this sweep alone, trainers are killed in both cases.
        """
        leaves = not cut_short and not self._private_cluster
        until = time.monotonic() + (10.0 if leaves else 2.0)
        for node in self._nodes:
            node.is_over = True
        with contextlib.suppress(*NO_ANSWER):
            self.broker.call("close", timeout=ANSWER_TIMEOUT_S)
        ended: dict[str, Any] = {}
        while not leaves and any(node.is_running for node in self._nodes) and time.monotonic() < until:
            # A controller that was still starting registers a little later.
            known = controllers(self.broker)
            for trainer in known.keys() - ended:
                ended[trainer] = known[trainer]
                if self._private_cluster:
                    ray.kill(known[trainer])
                else:
                    known[trainer].abort.remote()
            time.sleep(0.02)
        for node in self._nodes:
            node.end(max(0.0, until - time.monotonic()))
        for controller in ended.values():
            free_places_of(controller)
        ray.kill(self._actor)

    # --- machines -------------------------------------------------------------------------------------------

    def _plan_missing(self, *, later: bool) -> list[NodeTrainer]:
        """Trainers for the ranks of lanes that are missing on the present machines."""
        by_name = {machine.name: machine for machine in self.resources.machines}
        added = []
        for number, lane in self._lanes.items():
            for name in [name for name in lane if name in by_name]:
                machine = by_name[name]
                here = [node for node in self._nodes if node.machine.node_id == machine.node_id and not node.departed]
                missing = lane[name] - sum(node.ranks for node in here if node.lane == number)
                per_rank = self.per_rank(machine)
                cores = missing * per_rank["CPU"] + sum(node.ranks * node.per_rank["CPU"] for node in here)
                # Ranks that are more than cores (oversubscribe) may hold all of them already; Ray would wait for free
                # ones.
                fits = not here or (cores <= machine.cores and machine.node_id not in self._refused)
                if missing > 0 and fits:
                    on_machine = lanes_on(self._lanes, name)
                    share = (on_machine.index(number), len(on_machine))
                    settings = replace(self.settings(f"{self.name}-{len(self._nodes)}"), share=share)
                    # One lane is enough to go on: others need not start, as where their machines are in use. Those
                    # of one machine are compared first.
                    is_optional = later or (number != FIRST_LANE and not self.shares_machines)
                    node = NodeTrainer(settings, missing, per_rank, machine, is_optional, number)
                    self._nodes.append(node)
                    added.append(node)
        return added

    def _free_machines_of_other_lanes(self) -> None:
        """End the ranks that a machine holds for a lane to which it belongs no more."""
        for node in self._nodes:
            if not node.departed and node.machine.name not in self._lanes.get(node.lane, {}):
                node.departed = True
                self.broker.call("end_trainer", node.name, "")

    def _reconcile(self, now: Resources) -> None:
        """Adapt the trainers to the present machines."""
        there = {machine.node_id for machine in now.machines}
        for node in self._nodes:
            if not node.departed and node.machine.node_id not in there:
                node.departed = True
                self.broker.call("end_trainer", node.name, node.machine.name)
                self._notify(f"{node.machine.name} has left, and {node.ranks} ranks with it; their runs are run again.")
            if node.departed and node.is_running:
                # A trainer that is starting reports its controller only later.
                node.kill(self.broker)
        serving = {node.machine.node_id for node in self._nodes if not node.departed}
        before = {machine.node_id for machine in self.resources.machines} - self._refused
        usable = [
            machine
            for machine in now.machines
            if machine.node_id in serving | before
            or (machine.node_id not in self._refused and self._is_usable(machine))
        ]
        # New machines come after the others.
        for machine in usable:
            self._places.setdefault(machine.name, len(self._places))
        usable.sort(key=lambda machine: self._places[machine.name])
        self.resources = Resources(tuple(usable)).with_kinds(self._kinds)
        self._lanes = plan_lanes(self.resources, self._demand, self._most_lanes, self._lanes)
        if self._most_lanes != 1:
            self._free_machines_of_other_lanes()
        for node in self._plan_missing(later=True):
            self.broker.call("expect", node.name, node.expected)
            self._notify(f"{node.machine.name} is there: {node.ranks} ranks start on it.")
            node.start()

    def _is_usable(self, machine: Machine) -> bool:
        """Whether ranks can serve on a machine that has joined."""
        try:
            self._kinds |= check_machines(Resources((machine,)))
        except ClusterLostError:
            return False
        except ClusterError as error:
            self._refused.add(machine.node_id)
            self._notify(f"{machine.name} has joined and is left out: {error}")
            return False
        return True

    def _exclude_refused(self) -> None:
        """Leave out machines that have joined and whose ranks cannot serve."""
        later = [node for node in self._nodes if node.is_optional and not node.departed]
        refusals = self.broker.call("refusals") if later else {}
        for node in later:
            if node.name in refusals:
                node.departed = True
                self._refused.add(node.machine.node_id)
                self._notify(f"{refusals[node.name].rstrip('.')}. {node.machine.name} is left out.")
