"""The worker group: a broker, and one TorchTrainer a machine that holds the ranks for the whole sweep."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from dmls_ray.cluster.actors import BrokerLine, end_process, life_name, oom_kills_there
from dmls_ray.cluster.broker import Broker
from dmls_ray.cluster.connect import NAMESPACE
from dmls_ray.cluster.messages import Limits
from dmls_ray.cluster.resources import Machine, Resources
from dmls_ray.cluster.serve import serve

_SHORT_LIFE_S = 60.0
_SHORT_LIVES = 3
"""How often in a row a trainer may die that soon before the sweep is ended."""


def make_trainer(settings: dict[str, Any], *, ranks: int, per_rank: dict[str, float], node_id: str | None) -> Any:
    """A TorchTrainer whose workers serve the broker.

    Args:
        settings: what `serve` is given.
        ranks: number of workers.
        per_rank: Ray resources a worker holds.
        node_id: the machine to stay on, or None for any.
    """
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

    from dmls_ray.cluster.torch_group import GroupTrainer
    from dmls_ray.cluster.train_controller import NoProcessGroup, TellDeaths

    return GroupTrainer(
        serve,
        train_loop_config=settings,
        torch_config=NoProcessGroup(),
        broker=settings["broker"],
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
class Share:
    """The ranks that one machine holds."""

    machine: Machine
    ranks: int


def shares(resources: Resources, ranks: int, device: str) -> list[Share]:
    """So many ranks over as few machines as it takes, the largest first; more than there are cores go evenly on top."""
    # A cluster's head may offer nothing (ray start --head --num-cpus=0).
    offers = {machine: machine.gpus if device == "cuda" else machine.cores for machine in resources.machines}
    sizes = {machine: size for machine, size in offers.items() if size and machine.cores}
    largest_first = sorted(sizes, key=lambda machine: (-sizes[machine], machine.node_id))
    taken = dict.fromkeys(largest_first, 0)
    left = ranks
    for machine in largest_first:
        taken[machine] = min(left, sizes[machine])
        left -= taken[machine]
    for place in range(left):
        taken[largest_first[place % len(largest_first)]] += 1
    return [Share(machine=machine, ranks=count) for machine, count in taken.items() if count]


def _own_path() -> list[str]:
    """Where the user's modules are searched for first: the module path without what belongs to Python itself."""
    installed = tuple(os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix))
    folders = dict.fromkeys(os.path.abspath(folder) for folder in sys.path)
    return [folder for folder in folders if not os.path.realpath(folder).startswith(installed)]


class WorkerGroup:
    """Ranks that serve one sweep; made once, ended once.

    Args:
        resources: what the cluster has.
        ranks: number of ranks.
        device: `cpu`, or `cuda` to hold a GPU a rank.
        isolation: `group`, or `per_run`: then there are no ranks but those that a run brings along.
        own_cluster: whether the cluster ends with the sweep.
        limits: how long the broker waits, and how often it tries.
        exclusive: whether runs go one at a time.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        ranks: int,
        device: str,
        isolation: str,
        own_cluster: bool,
        limits: Limits,
        exclusive: bool = True,
    ) -> None:
        self._resources, self._ranks, self._device = resources, ranks, device
        self._isolation, self._own_cluster, self.limits = isolation, own_cluster, limits
        self._exclusive = exclusive
        self.name = f"dmls-ray-{uuid.uuid4().hex[:8]}"
        # Train and Tune want a folder to write their state to. Nothing is read from it again, so it goes with the
        # sweep.
        self._storage = tempfile.TemporaryDirectory(prefix="dmls_ray-", ignore_cleanup_errors=True)
        self._threads: list[threading.Thread] = []
        """The broker's keeper, and one a trainer."""
        self._controllers: set[Any] = set()
        self._trainers_made = 0
        self._ended = False
        self.broker = BrokerLine(self.name)
        self._actor: Any = None

    @property
    def storage(self) -> Path:
        """Folder for what Ray writes; removed by `end`."""
        return Path(self._storage.name)

    @property
    def per_rank(self) -> dict[str, float]:
        """Ray resources a rank holds: a core (a part of one where there are more ranks than cores), and its GPU."""
        most = max((share.ranks / share.machine.cores for share in self._shares()), default=1.0)
        # Rounded down to what Ray can count, so that all ranks fit.
        cpu = 1.0 if most <= 1 else int(1000 / most) / 1000
        return {"CPU": cpu} | ({"GPU": 1.0} if self._device == "cuda" else {})

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
        }

    def start(self) -> None:
        """Make the broker and set off the trainers; ranks join as they come up."""
        self._actor = self._make_broker(0)
        keeper = threading.Thread(target=self._keep_broker, daemon=True, name="broker")
        keeper.start()
        self._threads.append(keeper)
        if self._isolation == "per_run":
            return  # each run brings its own trainer
        for number, share in enumerate(self._shares()):
            thread = threading.Thread(target=self._hold, args=(number, share), daemon=True, name=f"trainer-{number}")
            thread.start()
            self._threads.append(thread)

    def end(self, *, cut_short: bool) -> None:
        """End the ranks and their trainers, and wait for it; remove the folder that Ray wrote to.

        A thread that still waits for Ray when it is shut down could take the whole process along, and leave Ray's
        processes behind.

        Args:
            cut_short: some ranks may be busy, so their trainers are aborted, which also frees what they hold of a
                cluster that goes on; else all are idle, and leave by themselves.
        """
        self._ended = True
        try:
            if self._actor is not None:
                until = time.monotonic() + (2.0 if cut_short else 10.0)
                self._end_trainers(cut_short=cut_short, until=until)
                ray.kill(self._actor)
                self._threads[0].join(max(1.0, until - time.monotonic()))
        except ray.exceptions.RayError as error:
            print(f"Ray went away before the worker group was ended: {_first_line(error)}", file=sys.stderr)
        finally:
            self._storage.cleanup()

    def _end_trainers(self, *, cut_short: bool, until: float) -> None:
        self.broker.call("close")
        aborted: set[Any] = set()
        while cut_short:
            # A controller that was still starting tells of itself a little later.
            self.note_controllers()
            for controller in self._controllers - aborted:
                controller.abort.remote()
                aborted.add(controller)
            if time.monotonic() > until or not any(thread.is_alive() for thread in self._threads[1:]):
                break
            time.sleep(0.05)
        for thread in self._threads[1:]:
            thread.join(max(0.0, until - time.monotonic()))

    def _shares(self) -> list[Share]:
        return shares(self._resources, self._ranks, self._device)

    def note_controllers(self) -> None:
        """Remember who controls the trainers: a broker that died has forgotten it."""
        if len(self._controllers) < self._trainers_made or self._ended:
            self._controllers |= set(self.broker.call("controllers"))

    def _make_broker(self, life: int) -> Any:
        expected = self._ranks if self._isolation == "group" else 0
        name = life_name(self.name, life)
        actor = ray.remote(Broker).options(name=name, namespace=NAMESPACE, num_cpus=0, max_concurrency=10_000)
        return actor.remote(
            expected, exclusive=self._exclusive, limits=self.limits, end_process=end_process,
            oom_kills_there=oom_kills_there,
        )  # fmt: skip

    def _keep_broker(self) -> None:
        """Make another broker whenever one dies."""
        for life in itertools.count(1):
            try:
                ray.get(self._actor.lives.remote())
            except SystemExit:
                return  # ray.shutdown() ends a waiting thread so
            except ray.exceptions.RayActorError:
                if self._ended:
                    return
                self._actor = self._make_broker(life)
            except ray.exceptions.RayError:
                return  # Ray itself is gone

    def _hold(self, number: int, share: Share) -> None:
        """Hold a machine's ranks until the sweep is over.

        A trainer whose controller dies is followed by another; one that fails in another way ends the sweep, with its
        reason, and so do several that die at once.
        """
        short_lives = 0
        for life in itertools.count():
            settings = self.settings(f"{self.name}-{number}.{life}")
            began = time.monotonic()
            self._trainers_made += 1
            try:
                make_trainer(settings, ranks=share.ranks, per_rank=self.per_rank, node_id=share.machine.node_id).fit()
                return
            except SystemExit:
                return  # ray.shutdown() ends a waiting thread so
            except Exception as error:  # noqa: BLE001 - whatever it is, the runs that wait must be told
                if self._ended:
                    return
                short_lives = short_lives + 1 if time.monotonic() - began < _SHORT_LIFE_S else 1
                if not isinstance(error, ray.exceptions.RayActorError) or short_lives > _SHORT_LIVES:
                    self.broker.call("abort", f"Ray Train's worker group failed: {_first_line(error)}")
                    return
                self.broker.call("end_trainer", settings["trainer"])
                if self._own_cluster:
                    _free_left_placement_groups()


def _free_left_placement_groups() -> None:
    """Give back what the trainer of a dead controller still holds, on a cluster that is ours alone.

    Elsewhere Train's own cleaner does so, which costs a process that a cluster of our own is spared.
    """
    from ray._raylet import PlacementGroupID
    from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

    for key, told in placement_group_table().items():
        # Tune's have names.
        if not told["name"] and told["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(PlacementGroupID.from_hex(key)))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
