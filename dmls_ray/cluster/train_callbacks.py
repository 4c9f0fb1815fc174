"""What Train's controller loads of ours; so without PyTorch, whose import would take seconds off every start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
from ray.train import UserCallback
from ray.train.backend import Backend, BackendConfig

from dmls_ray.cluster.broker_client import BrokerClient
from dmls_ray.cluster.compat import LOW_MEMORY_TEXT, NODE_DIED_TEXT, controller_callback_class
from dmls_ray.cluster.messages import RankDeath


class _NothingToSetUp(Backend):
    """The ranks of a run make their process group themselves, with the run's own backend and world size."""


@dataclass
class NoProcessGroup(BackendConfig):
    """Stands where TorchConfig would, whose module imports PyTorch."""

    backend: str = "gloo"
    """TorchTrainer fills this in where it is empty; it is not used."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _NothingToSetUp


class TellController(controller_callback_class()):  # type: ignore[misc]
    """Reports the controller's actor to the broker: a group can be ended from outside only through the controller."""

    def __init__(self, broker: str, trainer: str) -> None:
        self._broker, self._trainer = broker, trainer

    def after_controller_start(self, train_run_context: Any) -> None:
        """Called by Train in its controller."""
        controller = ray.get_runtime_context().current_actor
        BrokerClient(self._broker).call("controlled_by", self._trainer, controller)


class TellDeaths(UserCallback):
    """Reports to the broker which ranks died, and whether memory ran out or their machine left."""

    def __init__(self, broker: str, trainer: str) -> None:
        self._broker, self._trainer = broker, trainer

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Called by Train in its controller."""
        deaths = {}
        for index, error in worker_exceptions.items():
            # What Ray says of other deaths lists want of memory as well, among "common causes".
            cause = str(getattr(error, "health_check_failure", error))
            memory = "Ray's memory monitor ended it" if LOW_MEMORY_TEXT in cause else ""
            deaths[index] = RankDeath(memory=memory, left=NODE_DIED_TEXT in cause)
        BrokerClient(self._broker).call("ranks_failed", self._trainer, deaths)
