"""`NodeTrainer`: the TorchTrainer that holds the ranks of one machine. Loads PyTorch, with Ray's TorchTrainer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from dmls_ray.cluster.broker_client import BrokerClient, NoProcessGroup, TellController, TellDeaths
from dmls_ray.cluster.messages import ExpectedTrainer, TrainerSettings
from dmls_ray.cluster.resources import Machine
from dmls_ray.cluster.worker import serve
from dmls_ray.util.text import first_line


@dataclass
class NodeTrainer:
    """The ranks that one trainer holds on a machine."""

    name: str
    """Name of its TorchTrainer."""
    machine: Machine
    ranks: int
    later: bool
    """It was added while the sweep was running, mostly since its machine had joined: runs neither wait for it nor fail
    because of it.
    """
    per_rank: dict[str, float]
    """Ray resources that each rank holds."""
    thread: threading.Thread | None = None
    departed: bool = False
    """The machine has left, or cannot be used."""

    @property
    def expected(self) -> ExpectedTrainer:
        """What the broker is to expect of its trainer."""
        return ExpectedTrainer(ranks=self.ranks, machine=self.machine.name, is_optional=self.later)

    @property
    def is_running(self) -> bool:
        """Whether its TorchTrainer has not ended."""
        return self.thread is not None and self.thread.is_alive()


class GroupTrainer(TorchTrainer):
    """A TorchTrainer without the helpers that cost a process each and do nothing here.

    That is the one for Ray Data, and the one that frees the placement groups of a controller that died: the death of a
    controller ends the sweep, whose groups Ray then frees.
    """

    def _create_default_callbacks(self) -> list[Any]:
        callbacks: list[Any] = super()._create_default_callbacks()
        unneeded = {"DatasetsCallback", "PlacementGroupCleanerCallback"}
        needed = [callback for callback in callbacks if type(callback).__name__ not in unneeded]
        settings = self.train_loop_config["settings"]
        return [*needed, TellController(settings.broker, settings.trainer)]


def hold_ranks(
    settings: TrainerSettings,
    *,
    ranks: int,
    per_rank: dict[str, float],
    node_id: str | None,
    is_over: Callable[[], bool],
) -> None:
    """Run a TorchTrainer whose workers serve the broker until they have left; report to it if the trainer fails before.

    Args:
        settings: those of the trainer and its ranks.
        ranks: number of workers.
        per_rank: Ray resources of each worker.
        node_id: the machine to stay on; None for any.
        is_over: whether its ranks are needed no more.
    """
    try:
        trainer = GroupTrainer(
            serve,
            train_loop_config={"settings": settings},
            torch_config=NoProcessGroup(),
            scaling_config=ScalingConfig(
                num_workers=ranks,
                use_gpu=bool(per_rank.get("GPU")),
                resources_per_worker=per_rank,
                label_selector={"ray.io/node-id": node_id} if node_id else None,
            ),
            run_config=RunConfig(
                name=settings.trainer,
                storage_path=settings.storage,
                # The broker counts deaths, run by run; the group itself always comes back.
                failure_config=FailureConfig(max_failures=-1),
                callbacks=[TellDeaths(settings.broker, settings.trainer)],
                checkpoint_config=CheckpointConfig(num_to_keep=1),
            ),
        )
        trainer.fit()
    except SystemExit:
        return  # raised by ray.shutdown() in a waiting thread
    except Exception as error:  # noqa: BLE001 - whatever it is, waiting runs must be ended
        if is_over():
            return
        is_lost = isinstance(error, ray.exceptions.RayActorError)
        reason = "Ray Train's controller died" if is_lost else f"Ray Train's worker group failed: {first_line(error)}"
        with contextlib.suppress(ray.exceptions.RayError, ValueError):  # the broker has died as well
            BrokerClient(settings.broker).call("trainer_failed", settings.trainer, reason, is_lost=is_lost)
