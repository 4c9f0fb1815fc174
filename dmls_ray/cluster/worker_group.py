"""The worker group: a broker, and one TorchTrainer a machine that holds its ranks, as long as the machine is there."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dmls_ray.cluster.broker_client import BrokerClient, actor_name, end_process, oom_kills_there
from dmls_ray.cluster.compat import placement_group
from dmls_ray.cluster.connect import NAMESPACE, head_answers
from dmls_ray.cluster.placement import RankRequest
from dmls_ray.cluster.resources import Machine, Resources, cluster_resources
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.cluster.worker import serve
from dmls_ray.config.retry import RetryPolicy
from dmls_ray.util.errors import ClusterError
from dmls_ray.util.text import first_line

_SHORT_LIFE_S = 60.0
_SHORT_LIVES = 3
"""How often in a row a trainer may die that soon before the sweep is ended."""

_KILLED_WITHIN_S = 5.0
"""How long the thread of what was killed may take to end."""

_HEAD_BACK_WITHIN_S = 20.0
"""How long the head may not answer. Ray's own calls wait for it for three minutes, and end the process then."""

_LOOK_EVERY_S = 1.0
"""How often the machines of a cluster are looked at."""


def make_trainer(settings: dict[str, Any], *, ranks: int, per_rank: dict[str, float], node_id: str | None) -> Any:
    """A TorchTrainer whose workers serve the broker.

    Args:
        settings: what `serve` is given.
        ranks: number of workers.
        per_rank: Ray resources a worker holds.
        node_id: the machine to stay on, or None for any.
    """
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

    from dmls_ray.cluster.train_callbacks import NoProcessGroup, TellDeaths
    from dmls_ray.cluster.trainer import GroupTrainer

    return GroupTrainer(
        serve,
        train_loop_config=settings,
        torch_config=NoProcessGroup(),
        broker=settings["broker"],
        name=settings["trainer"],
        own_cluster=settings["own_cluster"],
        scaling_config=ScalingConfig(
            num_workers=ranks,
            use_gpu=bool(per_rank.get("GPU")),
            resources_per_worker=per_rank,
            label_selector={"ray.io/node-id": node_id} if node_id else None,
        ),
        run_config=RunConfig(
            name=settings["trainer"],
            storage_path=settings["storage"],
            # Deaths are the broker's to count, run by run; the group itself always comes back.
            failure_config=FailureConfig(max_failures=-1),
            callbacks=[TellDeaths(settings["broker"], settings["trainer"])],
            checkpoint_config=CheckpointConfig(num_to_keep=1),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class WorkerGroupSpec:
    """What the runs of a sweep ask of the machines."""

    needs: Sequence[RankRequest]
    device: str
    """`cpu`, or `cuda` to hold a GPU a rank."""
    oversubscribe: bool = False
    """Whether ranks may be more than cores."""
    data: Sequence[tuple[Any, ...]] = ()
    """Data sets that each machine prepares before its ranks serve."""


@dataclass
class _Share:
    """The ranks that one trainer holds of a machine."""

    machine: Machine
    ranks: int
    number: int
    later: bool
    """Whether the machine came while runs went on: none is to wait for it, or to end because of it."""
    trainer: str = ""
    """Name of its present trainer."""
    per_rank: dict[str, float] = field(default_factory=dict)
    """Ray resources that each of them holds."""
    thread: threading.Thread | None = None
    left: bool = False
    """The machine has left, or cannot be used."""
    told: bool = False
    """The broker knows that it has."""


def _own_path() -> list[str]:
    """Where the user's modules are searched for first: the module path without what belongs to Python itself."""
    installed = tuple(os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix))
    folders = dict.fromkeys(os.path.abspath(folder) for folder in sys.path)
    return [folder for folder in folders if not os.path.realpath(folder).startswith(installed)]


class WorkerGroup:
    """Ranks that serve one sweep; made once, ended once.

    It holds no more of a cluster than the largest run needs. A machine that joins is taken where ranks are missing; one
    that leaves takes its own ranks along.

    Args:
        resources: what the cluster has.
        demand: what the runs ask for.
        isolation: `group`, or `per_run`: then there are no ranks but those that a run brings along.
        own_cluster: whether the cluster ends with the sweep, and has this machine alone.
        policy: timeouts and retries.
        exclusive: whether runs go one at a time.
        tell: takes a note for the user, from any thread.
        head_is_lost: called once, from another thread, where the cluster's head is gone for good.
        check: looks a machine that has joined over; raises ClusterError where it cannot be used.
    """

    def __init__(
        self,
        resources: Resources,
        demand: WorkerGroupSpec,
        *,
        isolation: str,
        own_cluster: bool,
        policy: RetryPolicy,
        exclusive: bool = True,
        tell: Callable[[str], None] = print,
        head_is_lost: Callable[[], None] = lambda: None,
        check: Callable[[Resources], None] = lambda resources: None,
    ) -> None:
        self._resources, self._demand = resources, demand
        self._isolation, self._own_cluster, self.policy = isolation, own_cluster, policy
        self._exclusive, self._tell, self._check = exclusive, tell, check
        self._head_is_lost = head_is_lost
        self.name = f"dmls-ray-{uuid.uuid4().hex[:8]}"
        # Train and Tune want a folder to write their state to. Nothing is read from it again, so it goes with the
        # sweep.
        self._storage = tempfile.TemporaryDirectory(prefix="dmls_ray-", ignore_cleanup_errors=True)
        self._threads: list[threading.Thread] = []
        """The broker's keeper, and who looks after the machines."""
        self._shares: list[_Share] = []
        self._changing = threading.Lock()
        """Held while shares come, change their trainer or go."""
        self._following = threading.Lock()
        """Held while they are made to fit the machines that are there."""
        self._places: dict[str, int] = {}
        """Machines in the order in which runs take them: those of the beginning, and as they came."""
        self._unusable: set[str] = set()
        """Nodes that were looked over and cannot be used."""
        self._full: set[str] = set()
        """Nodes on which no more ranks are started than are there: some could not."""
        self._controllers: dict[str, Any] = {}
        self._ended = threading.Event()
        self.broker = BrokerClient(self.name)
        self._actor: Any = None

    @property
    def storage(self) -> Path:
        """Folder for what Ray writes; removed by `end`."""
        return Path(self._storage.name)

    @property
    def ranks(self) -> int:
        """How many ranks the machines that are there hold for the sweep."""
        return sum(self._wanted(self._resources).values())

    def per_rank(self, machine: Machine | None = None) -> dict[str, float]:
        """Ray resources a rank holds: a core (a part of one where there are more ranks than cores), and its GPU.

        Args:
            machine: the rank's; None for the fullest.
        """
        wanted = self._wanted(self._resources)
        full = [wanted.get(one.name, 0) / one.cores for one in self._resources.machines
                if one.cores and machine in (None, one)]  # fmt: skip
        most = max(full, default=1.0)
        # Rounded down to what Ray can count, so that all ranks fit.
        cpu = 1.0 if most <= 1 else int(1000 / most) / 1000
        return {"CPU": cpu} | ({"GPU": 1.0} if self._demand.device == "cuda" else {})

    def settings(self, trainer: str, max_leases: int | None = None) -> dict[str, Any]:
        """What the ranks of a trainer are told."""
        return {
            "broker": self.name,
            "trainer": trainer,
            "storage": str(self.storage),
            "cwd": os.getcwd(),
            "path": _own_path(),
            "max_leases": max_leases,
            "own_cluster": self._own_cluster,
            "machines": {machine.node_id: machine.name for machine in self._resources.machines},
            "places": dict(self._places),
            "data": list(self._demand.data),
            "later": False,
        }

    def start(self) -> None:
        """Make the broker and set off the trainers; ranks join as they come up."""
        self._places = {machine.name: place for place, machine in enumerate(self._resources.machines)}
        if self._isolation == "group":
            self._add_shares(later=False)
        self._actor = self._make_broker(0)
        self._threads.append(_set_off(self._keep_broker, "broker"))
        # Else each run brings its own trainer.
        for share in self._shares:
            self._start_share(share)
        if self._isolation == "group" and not self._own_cluster:
            self._threads.append(_set_off(self._look_after_machines, "machines"))
            self._threads.append(_set_off(self._look_after_head, "head"))

    def resize(self, demand: WorkerGroupSpec) -> None:
        """From now on hold what these runs ask for, on the machines that are there now.

        Where each run brings its own trainer, nothing is held.
        """
        with self._following:
            self._demand = demand
        if self._isolation == "group":
            self._follow(cluster_resources())

    def detach(self) -> None:
        """Leave all as it is: the cluster's head is gone, and no call to Ray would return."""
        self._ended.set()
        self._storage.cleanup()

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
            if self._actor is not None:
                until = time.monotonic() + (2.0 if cut_short else 10.0)
                # First who might start another trainer.
                for thread in self._threads[1:]:
                    thread.join(_KILLED_WITHIN_S)
                self._end_trainers(cut_short=cut_short, until=until)
                ray.kill(self._actor)
                self._threads[0].join(max(1.0, until - time.monotonic()))
        except ray.exceptions.RayError as error:
            print(f"Ray went away before the worker group was ended: {first_line(error)}", file=sys.stderr)
        finally:
            self._storage.cleanup()

    def _end_trainers(self, *, cut_short: bool, until: float) -> None:
        self.broker.call("close")
        aborted: set[str] = set()
        while cut_short:
            # A controller that was still starting tells of itself a little later.
            self.note_controllers()
            for trainer in self._controllers.keys() - aborted:
                self._controllers[trainer].abort.remote()
                aborted.add(trainer)
            if time.monotonic() > until or not any(map(_is_held, self._shares)):
                break
            time.sleep(0.05)
        for share in self._shares:
            if share.thread is not None:
                share.thread.join(max(0.0, until - time.monotonic()))
        for share in filter(_is_held, self._shares):
            # Its ranks were still starting, or its machine does not answer.
            self._kill_trainer(share)
            assert share.thread is not None
            share.thread.join(_KILLED_WITHIN_S)

    def note_controllers(self) -> None:
        """Remember who controls the trainers: a broker that died has forgotten it."""
        if self._ended.is_set() or not {share.trainer for share in self._shares} <= self._controllers.keys():
            self._controllers |= self.broker.call("controllers")

    # --- the broker -----------------------------------------------------------------------------------------

    def _make_broker(self, life: int) -> Any:
        with self._changing:
            there = [share for share in self._shares if not share.left]
            awaited = {share.trainer: share.ranks for share in there}
            later = [share.trainer for share in there if share.later]
        name = actor_name(self.name, life)
        # Where this process is, so that no other machine takes it along.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(Broker).options(
            name=name, namespace=NAMESPACE, num_cpus=0, max_concurrency=10_000, scheduling_strategy=here
        )
        return actor.remote(
            awaited, joining_later=later, exclusive=self._exclusive, policy=self.policy, end_process=end_process,
            oom_kills_on=oom_kills_there,
        )  # fmt: skip

    def _keep_broker(self) -> None:
        """Make another broker whenever one dies."""
        for life in itertools.count(1):
            try:
                ray.get(self._actor.wait_for_death.remote())
            except SystemExit:
                return  # ray.shutdown() ends a waiting thread so
            except ray.exceptions.RayActorError:
                if self._ended.is_set():
                    return
                self._actor = self._make_broker(life)
            except ray.exceptions.RayError:
                return  # Ray itself is gone

    # --- machines -------------------------------------------------------------------------------------------

    def _wanted(self, resources: Resources) -> dict[str, int]:
        demand = self._demand
        return resources.ranks_to_hold(demand.needs, demand.device, oversubscribe=demand.oversubscribe)

    def _add_shares(self, *, later: bool) -> list[_Share]:
        """Shares for what is missing on the machines that are there."""
        by_name = {machine.name: machine for machine in self._resources.machines}
        added = []
        for name, count in self._wanted(self._resources).items():
            machine = by_name[name]
            held = [one for one in self._shares if one.machine.node_id == machine.node_id and not one.left]
            missing = count - sum(one.ranks for one in held)
            per_rank = self.per_rank(machine)
            cores = missing * per_rank["CPU"] + sum(one.ranks * one.per_rank["CPU"] for one in held)
            # Ranks that are more than cores (oversubscribe) may hold all of them already; Ray would wait for room.
            room = not held or (cores <= machine.cores and machine.node_id not in self._full)
            if missing > 0 and room:
                number = len(self._shares)
                share = _Share(machine=machine, ranks=missing, number=number, later=later, per_rank=per_rank)
                share.trainer = f"{self.name}-{number}.0"
                self._shares.append(share)
                added.append(share)
        return added

    def _start_share(self, share: _Share) -> None:
        share.thread = _set_off(lambda: self._hold(share), f"trainer-{share.number}")

    def _look_after_machines(self) -> None:
        """Follow the cluster: a machine that leaves takes its ranks along, one that joins is taken where needed."""
        while not self._ended.wait(_LOOK_EVERY_S):
            try:
                self._follow(cluster_resources())
            except SystemExit:
                return  # ray.shutdown() ends a waiting thread so
            except (ray.exceptions.RayError, ConnectionError, RuntimeError):
                if not ray.is_initialized():
                    return
                # The cluster's head does not answer now; if it does not come back, Ray ends this process's connection.

    def _look_after_head(self) -> None:
        silent_since: float | None = None
        while not self._ended.wait(_LOOK_EVERY_S):
            asked = time.monotonic()
            if head_answers():
                silent_since = None
                continue
            silent_since = silent_since or asked
            if time.monotonic() - silent_since > _HEAD_BACK_WITHIN_S:
                self._head_is_lost()
                return

    def _follow(self, now: Resources) -> None:
        """Make the shares fit the machines that are there; what fails is done at the next look."""
        with self._following:
            there = {machine.node_id for machine in now.machines}
            for share in self._shares:
                if not share.left and share.machine.node_id not in there:
                    self._let_go(share)
            self._end_what_has_left()
            before = {machine.node_id for machine in self._resources.machines}
            usable = [one for one in now.machines if one.node_id not in self._unusable]
            usable = [one for one in usable if one.node_id in before or self._is_usable(one)]
            # In the order of before; those that have come follow.
            for machine in usable:
                self._places.setdefault(machine.name, len(self._places))
            self._resources = Resources(tuple(sorted(usable, key=lambda one: self._places[one.name])))
            if not self._ended.is_set():
                self._take_what_is_missing()

    def _is_usable(self, machine: Machine) -> bool:
        """Whether ranks can serve on a machine that has joined."""
        try:
            self._check(Resources((machine,)))
        except ClusterError as error:
            self._unusable.add(machine.node_id)
            self._tell(f"{machine.name} has joined and is left out: {error}")
            return False
        return True

    def _take_what_is_missing(self) -> None:
        with self._changing:
            added = self._add_shares(later=True)
        for share in added:
            self.broker.call("expect", share.trainer, share.ranks, later=True)
            self._tell(f"{share.machine.name} is there: {share.ranks} ranks start on it.")
            self._start_share(share)

    def _let_go(self, share: _Share) -> None:
        """A machine has left; from here on neither another broker nor another trainer counts on it."""
        with self._changing:
            share.left = True
        self._tell(f"{share.machine.name} has left, and {share.ranks} ranks with it; what they were in is run again.")

    def _end_what_has_left(self) -> None:
        """Tell the broker, and end the trainers: of one that was still starting, the controller is known only later."""
        for share in self._shares:
            if share.left and not share.told:
                self.broker.call("end_trainer", share.trainer, left=share.machine.name)
                share.told = True
            if share.left and _is_held(share):
                self._kill_trainer(share)

    def _kill_trainer(self, share: _Share) -> None:
        """End a trainer that waits for a machine which is not there: it would for ever, and hears nothing else."""
        self.note_controllers()
        controller = self._controllers.get(share.trainer)
        if controller is not None:
            ray.kill(controller)

    # --- trainers -------------------------------------------------------------------------------------------

    def _hold(self, share: _Share) -> None:
        """Hold ranks on a machine until the sweep is over, or the machine is gone.

        A trainer whose controller dies is followed by another; one that fails in another way ends the sweep, with its
        reason, and so do several that die at once.
        """
        short_lives = 0
        for life in itertools.count():
            if share.left:
                return
            settings = {**self.settings(share.trainer), "later": share.later}
            began = time.monotonic()
            try:
                node_id = share.machine.node_id
                make_trainer(settings, ranks=share.ranks, per_rank=share.per_rank, node_id=node_id).fit()
                if not self._ended.is_set() and (reason := self.broker.call("refusal", share.trainer)):
                    self._leave_out(share, reason)
                return
            except SystemExit:
                return  # ray.shutdown() ends a waiting thread so
            except Exception as error:  # noqa: BLE001 - whatever it is, the runs that wait must be told
                if self._ended.is_set() or share.left:
                    return
                short_lives = short_lives + 1 if time.monotonic() - began < _SHORT_LIFE_S else 1
                if not isinstance(error, ray.exceptions.RayActorError) or short_lives > _SHORT_LIVES:
                    reason = f"Ray Train's worker group failed: {first_line(error)}"
                    if share.later:
                        self.broker.call("end_trainer", share.trainer, refused=reason)
                        self._leave_out(share, reason)
                    else:
                        self.broker.call("abort", reason)
                    return
                with self._changing:
                    if share.left:
                        return
                    before, share.trainer = share.trainer, f"{self.name}-{share.number}.{life + 1}"
                self.broker.call("expect", share.trainer, share.ranks, later=share.later)
                self.broker.call("end_trainer", before)
                if self._own_cluster:
                    _free_left_placement_groups()

    def _leave_out(self, share: _Share, reason: str) -> None:
        """A machine cannot be used, which the broker knows: one that follows it is not to wait for it either."""
        with self._changing:
            share.left = share.told = True
            serves = any(one.machine.node_id == share.machine.node_id and not one.left for one in self._shares)
        (self._full if serves else self._unusable).add(share.machine.node_id)
        self._tell(f"{reason}. {share.machine.name} is left out.")


def _set_off(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True, name=name)
    thread.start()
    return thread


def _is_held(share: _Share) -> bool:
    return share.thread is not None and share.thread.is_alive()


def _free_left_placement_groups() -> None:
    """Give back what the trainer of a dead controller still holds, on a cluster that is ours alone.

    Elsewhere Train's own cleaner does so, which costs a process that a cluster of our own is spared.
    """
    from ray.util.placement_group import placement_group_table, remove_placement_group

    for key, told in placement_group_table().items():
        # Tune's have names.
        if not told["name"] and told["state"] != "REMOVED":
            remove_placement_group(placement_group(key))
