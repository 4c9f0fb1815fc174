"""`NodeTrainer`: the TorchTrainer that holds the ranks of one machine."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.cluster.messages import TrainerSettings
from dmls_ray.cluster.resources import Machine
from dmls_ray.cluster.worker import serve


@dataclass
class NodeTrainer:
    """The ranks that one trainer holds on a machine."""

    machine: Machine
    ranks: int
    number: int
    later: bool
    """The machine joined mid-sweep: runs neither wait for it nor fail because of it."""
    trainer: str = ""
    """Name of its current TorchTrainer."""
    per_rank: dict[str, float] = field(default_factory=dict)
    """Ray resources that each rank holds."""
    thread: threading.Thread | None = None
    departed: bool = False
    """The machine has left, or cannot be used."""
    reported: bool = False
    """The broker knows that it has."""


def is_running(node: NodeTrainer) -> bool:
    """Whether its TorchTrainer has not ended."""
    return node.thread is not None and node.thread.is_alive()


def make_trainer(settings: TrainerSettings, *, ranks: int, per_rank: dict[str, float], node_id: str | None) -> Any:
    """A TorchTrainer whose workers serve the broker.

    Args:
        settings: those of the trainer and its ranks.
        ranks: number of workers.
        per_rank: Ray resources of each worker.
        node_id: the machine to stay on; None for any.
    """
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

    from dmls_ray.cluster.train_callbacks import NoProcessGroup, TellDeaths
    from dmls_ray.cluster.trainer import GroupTrainer

    return GroupTrainer(
        serve,
        train_loop_config={"settings": settings},
        torch_config=NoProcessGroup(),
        broker=settings.broker,
        name=settings.trainer,
        private_cluster=settings.private_cluster,
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


def module_path() -> tuple[str, ...]:
    """The module search path without the folders of Python itself."""
    installed = tuple(os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix))
    folders = dict.fromkeys(os.path.abspath(folder) for folder in sys.path)
    return tuple(folder for folder in folders if not os.path.realpath(folder).startswith(installed))
