"""`NodeTrainer`: the TorchTrainer that holds the ranks of one machine. Loads PyTorch, with Ray's TorchTrainer."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import Any

import ray
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from dmls_ray.cluster.broker_client import BrokerClient, NoProcessGroup, TellBroker
from dmls_ray.cluster.compat import free_places_of
from dmls_ray.cluster.messages import ExpectedTrainer, TrainerSettings
from dmls_ray.cluster.resources import Machine
from dmls_ray.cluster.worker import serve_runs
from dmls_ray.records.model import FIRST_LANE
from dmls_ray.util.text import first_line

KILL_TIMEOUT_S = 5.0
"""How long the thread of a trainer that was killed may take to end."""

NO_ANSWER = (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError, ValueError)
"""Errors of a call to a broker that is gone, or does not answer."""

_ANSWER_TIMEOUT_S = 5.0


class GroupTrainer(TorchTrainer):
    """A TorchTrainer without the helpers that cost a process each and do nothing here.

    That is the one for Ray Data, and the one that frees the placement groups of a controller that died: the death of a
    controller ends the sweep, whose groups Ray then frees. The method is private to Ray: without it, every trainer
    starts two more processes.
    """

    def _create_default_callbacks(self) -> list[Any]:
        callbacks: list[Any] = super()._create_default_callbacks()
        unneeded = {"DatasetsCallback", "PlacementGroupCleanerCallback"}
        needed = [callback for callback in callbacks if type(callback).__name__ not in unneeded]
        # Train passes this one only what concerns workers; here also what concerns the controller.
        return [*needed, *self.run_config.callbacks]


@dataclass
class NodeTrainer:
    """The ranks that one trainer holds on a machine, and the thread in which it runs."""

    settings: TrainerSettings
    ranks: int
    per_rank: dict[str, float]
    """Ray resources that each rank holds."""
    machine: Machine
    """The machine to stay on."""
    is_optional: bool = False
    """Runs neither wait for it nor fail because of it: it is of another lane than the first, or was added while the
    sweep was running, mostly since its machine had joined.
    """
    lane: int = FIRST_LANE
    """The lane of its ranks."""
    thread: threading.Thread | None = None
    departed: bool = False
    """The machine has left, or cannot be used."""
    is_over: bool = False
    """Its ranks are needed no more."""

    @property
    def name(self) -> str:
        """Name of its TorchTrainer."""
        return self.settings.trainer

    @property
    def expected(self) -> ExpectedTrainer:
        """What the broker is to expect of its trainer."""
        return ExpectedTrainer(
            ranks=self.ranks, machine=self.machine.name, is_optional=self.is_optional, lane=self.lane
        )

    @property
    def is_running(self) -> bool:
        """Whether its TorchTrainer has not ended."""
        return self.thread is not None and self.thread.is_alive()

    def start(self) -> None:
        """Hold the ranks until they have left, in a thread."""
        self.thread = threading.Thread(target=self._hold, daemon=True, name=self.name)
        self.thread.start()

    def end(self, within_s: float) -> None:
        """Wait until the ranks have left, and kill the trainer if they do not: they may still be starting."""
        self.is_over = True
        if self.thread is not None:
            self.thread.join(within_s)
        if self.thread is not None and self.is_running:
            self.kill(BrokerClient(self.settings.broker))
            self.thread.join(KILL_TIMEOUT_S)

    def kill(self, broker: BrokerClient) -> None:
        """End the trainer, if its controller is known: one whose machine is gone would wait for ever."""
        if controller := controllers(broker).get(self.name):
            ray.kill(controller)
            free_places_of(controller)

    def _hold(self) -> None:
        """Run a TorchTrainer whose workers serve the broker; report to it a failure before they have left."""
        try:
            self._trainer().fit()
        except SystemExit:
            return  # raised by ray.shutdown() in a waiting thread
        except Exception as error:  # noqa: BLE001 - whatever it is, waiting runs must be ended
            if self.is_over or self.departed:
                return
            is_lost = isinstance(error, ray.exceptions.RayActorError)
            reason = "Ray Train's controller died"
            if not is_lost:
                reason = f"Ray Train's worker group failed: {first_line(error)}"
            with contextlib.suppress(ray.exceptions.RayError, ValueError):  # the broker has died as well
                BrokerClient(self.settings.broker).call("trainer_failed", self.name, reason, is_lost=is_lost)

    def _trainer(self) -> GroupTrainer:
        return GroupTrainer(
            serve_runs,
            train_loop_config={"settings": self.settings},
            torch_config=NoProcessGroup(),
            scaling_config=ScalingConfig(
                num_workers=self.ranks,
                use_gpu=bool(self.per_rank.get("GPU")),
                resources_per_worker=self.per_rank,
                label_selector={"ray.io/node-id": self.machine.node_id} if self.machine.node_id else None,
            ),
            run_config=RunConfig(
                name=self.name,
                storage_path=self.settings.storage,
                # The broker counts deaths, run by run; the group itself always comes back.
                failure_config=FailureConfig(max_failures=-1),
                callbacks=[TellBroker(self.settings.broker, self.name)],
                checkpoint_config=CheckpointConfig(num_to_keep=1),
            ),
        )


def controllers(broker: BrokerClient) -> dict[str, Any]:
    """The actors that control trainers, by trainer; none if the broker does not answer."""
    with contextlib.suppress(*NO_ANSWER):
        known: dict[str, Any] = broker.call("known_controllers", timeout=_ANSWER_TIMEOUT_S)
        return known
    return {}
