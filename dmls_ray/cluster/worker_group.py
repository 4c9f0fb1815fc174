"""The worker group: a broker, and one TorchTrainer per machine that holds its ranks while the machine is there.

One module because starting, resizing and ending trainers change one list of trainers under one lock.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import ray

from dmls_ray.cluster import node_trainer
from dmls_ray.cluster.broker_client import BrokerClient
from dmls_ray.cluster.broker_supervisor import BrokerSupervisor
from dmls_ray.cluster.cluster_watch import watch_nodes
from dmls_ray.cluster.messages import ExpectedTrainer, TrainerSettings
from dmls_ray.cluster.node_check import check_machines
from dmls_ray.cluster.node_trainer import NodeTrainer
from dmls_ray.cluster.placement import WorkerGroupSpec
from dmls_ray.cluster.resources import Machine, Resources, cluster_resources
from dmls_ray.cluster.trainer_lives import run_trainer
from dmls_ray.config.run_limits import RunLimits
from dmls_ray.util.errors import ClusterError
from dmls_ray.util.module_path import module_path
from dmls_ray.util.temporary_folder import TemporaryFolder
from dmls_ray.util.text import first_line

KILL_TIMEOUT_S = 5.0
"""How long the thread of a trainer that was killed may take to end."""

ANSWER_TIMEOUT_S = 5.0
"""How long the broker may take to answer at the end of the sweep, when none takes the place of a stopped one."""

_NO_ANSWER = (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError)


class WorkerGroup:
    """The ranks of one sweep, from its start to its end.

    It holds no more of a cluster than the largest run needs. A machine that joins is used if ranks are missing; the
    ranks of a machine that leaves are gone with it.

    Args:
        resources: what the cluster has.
        demand: what the runs ask for.
        isolation: `group`, or `per_run`: then each run starts and ends its ranks, and the group holds none.
        private_cluster: whether the cluster ends with the sweep, and has this machine alone.
        limits: timeouts, retries and the memory of ranks.
        exclusive: whether runs go one at a time.
        notify: takes a message for the user, from any thread.
        has_failed: called once, from another thread, with the reason why the group cannot serve any more.
    """

    def __init__(
        self,
        resources: Resources,
        demand: WorkerGroupSpec,
        *,
        isolation: str,
        private_cluster: bool,
        limits: RunLimits,
        exclusive: bool = True,
        notify: Callable[[str], None] = print,
        has_failed: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._resources, self._demand = resources, demand
        self.isolation, self._private_cluster, self.limits = isolation, private_cluster, limits
        self._exclusive, self.notify = exclusive, notify
        self._has_failed = has_failed
        self.name = f"dmls-ray-{uuid.uuid4().hex[:8]}"
        # Train and Tune write their state to a folder. Nothing is read from it, so it is removed with the sweep.
        self._storage = TemporaryFolder("ray")
        self.storage = str(self._storage.path)
        self._threads: list[threading.Thread] = []
        """Threads that watch the cluster."""
        self._nodes: list[NodeTrainer] = []
        self._changing = threading.Lock()
        """Held while `_nodes` changes, or a node gets another trainer."""
        self._reconciling = threading.Lock()
        """Held while the trainers are adapted to the machines of the cluster."""
        self._places: dict[str, int] = {}
        """Position of each machine in the order in which runs take machines; later machines come last."""
        self._unusable: set[str] = set()
        """Nodes that were checked and cannot be used."""
        self._full: set[str] = set()
        """Nodes that serve some ranks, and on which further ranks could not start."""
        self._controllers: dict[str, Any] = {}
        self._ended = threading.Event()
        self.broker = BrokerClient(self.name)
        self._supervisor: BrokerSupervisor | None = None

    @property
    def ranks(self) -> int:
        """How many ranks the present machines hold for the sweep."""
        return sum(self._resources.ranks_to_hold(self._demand).values())

    def per_rank(self, machine: Machine | None = None) -> dict[str, float]:
        """Ray resources a rank holds: a core (a part of one where there are more ranks than cores), and its GPU.

        Args:
            machine: where the rank is; None for the machine with most ranks for its cores.
        """
        wanted = self._resources.ranks_to_hold(self._demand)
        machines = self._resources.machines if machine is None else (machine,)
        most = max((wanted.get(item.name, 0) / item.cores for item in machines if item.cores), default=1.0)
        # Rounded down to what Ray can count, so that all ranks fit.
        cpu = 1.0 if most <= 1 else int(1000 / most) / 1000
        return {"CPU": cpu} | ({"GPU": 1.0} if self._demand.device == "cuda" else {})

    def settings(self, trainer: str) -> TrainerSettings:
        """The settings of a trainer and its ranks."""
        return TrainerSettings(
            broker=self.name,
            trainer=trainer,
            storage=self.storage,
            working_dir=os.getcwd(),
            module_path=module_path(),
            machine_names={machine.node_id: machine.name for machine in self._resources.machines},
            machine_order=dict(self._places),
            data=tuple(self._demand.data),
        )

    def start(self) -> None:
        """Make the broker and set off the trainers; ranks join as they come up."""
        self._places = {machine.name: place for place, machine in enumerate(self._resources.machines)}
        if self.isolation == "group":
            self._plan_missing(later=False)
        self._supervisor = BrokerSupervisor(
            self.name,
            expected=self._expected,
            exclusive=self._exclusive,
            limits=self.limits,
            ended=self._ended,
            controllers=lambda: dict(self._controllers),
            has_failed=self._has_failed,
            notify=self.notify,
        )
        # Else each run brings its own trainer.
        for node in self._nodes:
            self._start_node(node)
        if self.isolation == "group" and not self._private_cluster:
            self._threads.append(_start_thread(lambda: watch_nodes(self._ended, self._reconcile), "nodes"))

    def resize(self, demand: WorkerGroupSpec) -> None:
        """From now on hold what these runs ask for, on the present machines.

        Does nothing if each run has its own trainer.
        """
        with self._reconciling:
            self._demand = demand
        if self.isolation == "group":
            self._reconcile(cluster_resources())

    def detach(self) -> None:
        """Forget the ranks without a call to Ray, which would not return: the cluster is lost."""
        self._ended.set()
        self._storage.remove()

    def end(self, *, cut_short: bool) -> None:
        """End the ranks and their trainers, and wait for it; remove the folder that Ray wrote to.

        A thread that still waits for Ray when it is shut down could take the whole process along, and leave Ray's
        processes behind.

        Args:
            cut_short: some ranks may be busy, so their trainers are aborted, which also frees what they hold of a
                cluster that goes on; else all are idle, and leave by themselves.
        """
        self._ended.set()
        try:
            if self._supervisor is not None:
                until = time.monotonic() + (2.0 if cut_short else 10.0)
                # The threads that might start another trainer end first.
                for thread in self._threads:
                    thread.join(KILL_TIMEOUT_S)
                self._end_trainers(cut_short=cut_short, until=until)
                self._supervisor.stop(max(1.0, until - time.monotonic()))
        except ray.exceptions.RayError as error:
            print(f"Ray went away before the worker group was ended: {first_line(error)}", file=sys.stderr)
        finally:
            self._storage.remove()

    def _end_trainers(self, *, cut_short: bool, until: float) -> None:
        # Without a broker, which is not replaced any more, ranks do not learn that they may leave.
        with contextlib.suppress(*_NO_ANSWER):
            self.broker.call_once("close", timeout=ANSWER_TIMEOUT_S)
        aborted: set[str] = set()
        while cut_short:
            # A controller that was still starting registers a little later.
            self.note_trainers()
            for trainer in self._controllers.keys() - aborted:
                self._controllers[trainer].abort.remote()
                aborted.add(trainer)
            if time.monotonic() > until or not any(node.is_running for node in self._nodes):
                break
            time.sleep(0.05)
        for node in self._nodes:
            if node.thread is not None:
                node.thread.join(max(0.0, until - time.monotonic()))
        for node in self._nodes:
            if node.thread is not None and node.is_running:
                # Its ranks were still starting, or its machine does not answer.
                self._kill_trainer(node)
                node.thread.join(KILL_TIMEOUT_S)

    def note_trainers(self) -> None:
        """Remember the controllers of the trainers, and which have served: a broker that died has forgotten it."""
        known = all(node.trainer in self._controllers and (node.has_served or node.departed) for node in self._nodes)
        if self._ended.is_set():
            # Without a broker, which is not replaced any more, those that are known are all there are.
            with contextlib.suppress(*_NO_ANSWER):
                self._controllers |= self.broker.call_once("trainers", timeout=ANSWER_TIMEOUT_S)[0]
        elif not known:
            controllers, served = self.broker.call("trainers")
            self._controllers |= controllers
            for node in self._nodes:
                node.has_served = node.has_served or node.trainer in served

    def _expected(self) -> dict[str, ExpectedTrainer]:
        """The trainers that a new broker is to expect."""
        with self._changing:
            return {node.trainer: node.expected for node in self._nodes if not node.departed}

    # --- machines -------------------------------------------------------------------------------------------

    def _plan_missing(self, *, later: bool) -> list[NodeTrainer]:
        """Trainers for the ranks that are missing on the present machines."""
        by_name = {machine.name: machine for machine in self._resources.machines}
        added = []
        for name, count in self._resources.ranks_to_hold(self._demand).items():
            machine = by_name[name]
            present = [node for node in self._nodes if node.machine.node_id == machine.node_id and not node.departed]
            missing = count - sum(node.ranks for node in present)
            per_rank = self.per_rank(machine)
            cores = missing * per_rank["CPU"] + sum(node.ranks * node.per_rank["CPU"] for node in present)
            # Ranks that are more than cores (oversubscribe) may hold all of them already; Ray would wait for free ones.
            fits = not present or (cores <= machine.cores and machine.node_id not in self._full)
            if missing > 0 and fits:
                number = len(self._nodes)
                node = NodeTrainer(machine=machine, ranks=missing, number=number, later=later, per_rank=per_rank)
                node.trainer = f"{self.name}-{number}.0"
                self._nodes.append(node)
                added.append(node)
        return added

    def _start_node(self, node: NodeTrainer) -> None:
        node.thread = _start_thread(lambda: self._run_trainer(node), f"trainer-{node.number}")

    def _reconcile(self, now: Resources) -> None:
        """Adapt the trainers to the present machines; what fails is done at the next call."""
        with self._reconciling:
            there = {machine.node_id for machine in now.machines}
            for node in self._nodes:
                if not node.departed and node.machine.node_id not in there:
                    # From here on, neither a new broker nor a new trainer waits for it.
                    with self._changing:
                        node.departed = True
                    self.notify(
                        f"{node.machine.name} has left, and {node.ranks} ranks with it; what they were in is run again."
                    )
            self._stop_departed()
            before = {machine.node_id for machine in self._resources.machines}
            usable = [machine for machine in now.machines if machine.node_id not in self._unusable]
            usable = [machine for machine in usable if machine.node_id in before or self._is_usable(machine)]
            # New machines come after the others.
            for machine in usable:
                self._places.setdefault(machine.name, len(self._places))
            self._resources = Resources(tuple(sorted(usable, key=lambda machine: self._places[machine.name])))
            if self._ended.is_set():
                return
            with self._changing:
                added = self._plan_missing(later=True)
            for node in added:
                self.broker.call("expect", node.trainer, node.expected)
                self.notify(f"{node.machine.name} is there: {node.ranks} ranks start on it.")
                self._start_node(node)

    def _is_usable(self, machine: Machine) -> bool:
        """Whether ranks can serve on a machine that has joined."""
        try:
            check_machines(Resources((machine,)))
        except ClusterError as error:
            self._unusable.add(machine.node_id)
            self.notify(f"{machine.name} has joined and is left out: {error}")
            return False
        return True

    def _stop_departed(self) -> None:
        """Notify the broker and end the trainers. A trainer that is starting reports its controller only later."""
        for node in self._nodes:
            if node.departed and not node.reported:
                self.broker.call("end_trainer", node.trainer, left=node.machine.name)
                node.reported = True
            if node.departed and node.is_running:
                self._kill_trainer(node)

    def _kill_trainer(self, node: NodeTrainer) -> None:
        """End a trainer whose machine is gone or does not answer: it would wait for ever."""
        self.note_trainers()
        controller = self._controllers.get(node.trainer)
        if controller is not None:
            ray.kill(controller)

    # --- trainers -------------------------------------------------------------------------------------------

    def _run_trainer(self, node: NodeTrainer) -> None:
        """Hold ranks on a machine until the sweep is over, or the machine is gone."""

        def fit(trainer: str) -> None:
            node_trainer.make_trainer(
                self.settings(trainer), ranks=node.ranks, per_rank=node.per_rank, node_id=node.machine.node_id
            ).fit()

        def rename(trainer: str) -> bool:
            with self._changing:
                if not node.departed:
                    node.trainer = trainer
                return not node.departed

        reason = run_trainer(
            self.broker,
            node.trainer,
            lambda: node.expected,
            fit=fit,
            is_over=lambda: self._ended.is_set() or node.departed,
            rename=rename,
        )
        if reason and node.later:
            self._exclude(node, reason)

    def _exclude(self, node: NodeTrainer, reason: str) -> None:
        """Leave out a machine that cannot be used; the broker knows it, and a new broker does not wait for it."""
        with self._changing:
            node.departed = node.reported = True
            node_id = node.machine.node_id
            serves = any(item.machine.node_id == node_id and not item.departed for item in self._nodes)
        (self._full if serves else self._unusable).add(node_id)
        self.notify(f"{reason.rstrip('.')}. {node.machine.name} is left out.")


def _start_thread(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True, name=name)
    thread.start()
    return thread
