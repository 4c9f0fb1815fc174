"""Calls to the broker: `BrokerClient`, and the callbacks by which Ray Train's controller reports to it.

Loads no PyTorch, whose import would take seconds off every start of a controller.
"""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.train import UserCallback
from ray.train.backend import BackendConfig

from dmls_ray.cluster.compat import LOW_MEMORY_TEXT, NODE_DIED_TEXT, controller_callback_class
from dmls_ray.cluster.connect import NAMESPACE
from dmls_ray.cluster.messages import RankDeath

NETWORK_TIMEOUT_S = 60.0
"""How long the network between a machine and the broker may fail."""

RETRY_INTERVAL_S = 0.1
"""Seconds until a broker that the network hides is called again."""


class BrokerClient:
    """The broker, seen from another process.

    Args:
        name: name of the broker's actor.
        actor: the actor, if this process has it; to find it by its name takes Ray's GCS, which may have ended.
    """

    def __init__(self, name: str, actor: Any = None) -> None:
        self.name = name
        self._actor = actor

    def submit(self, method: str, *args: Any, **options: Any) -> Any:
        """Call without waiting; returns the answer to come.

        Raises:
            ValueError: there is no broker.
        """
        if self._actor is None:
            self._actor = ray.get_actor(self.name, namespace=NAMESPACE)
        return getattr(self._actor, method).remote(*args, **options)

    def call(self, method: str, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        """Call, wait, and return the answer. The call is repeated while the network fails.

        Args:
            method: name of the method.
            args: arguments of the method.
            timeout: seconds to wait; None: no limit.
            options: arguments by name.

        Raises:
            ValueError: there is no broker.
            RayActorError: the broker died.
            GetTimeoutError: the broker did not answer in time.
        """
        until = time.monotonic() + NETWORK_TIMEOUT_S
        while True:
            try:
                return ray.get(self.submit(method, *args, **options), timeout=timeout)
            except ray.exceptions.ActorUnavailableError:
                if time.monotonic() > until:
                    raise
                time.sleep(RETRY_INTERVAL_S)


class NoProcessGroup(BackendConfig):
    """Sets nothing up: the ranks of a run make their process group themselves. TorchConfig would import PyTorch."""

    backend = "gloo"
    """TorchTrainer fills this in where it is empty; it is not used."""


class TellBroker(UserCallback, controller_callback_class()):  # type: ignore[misc]
    """Reports to the broker what Train's controller knows of a trainer."""

    def __init__(self, broker: str, trainer: str) -> None:
        self._broker, self._trainer = broker, trainer

    def after_controller_start(self, train_run_context: Any) -> None:
        """Report the controller's actor: a group can be ended from outside only through the controller."""
        controller = ray.get_runtime_context().current_actor
        BrokerClient(self._broker).call("controlled_by", self._trainer, controller)

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Report which ranks died, and whether memory ran out or their machine left; Train starts others after it."""
        deaths = {}
        for index, error in worker_exceptions.items():
            # What Ray says of other deaths lists want of memory as well, among "common causes".
            cause = str(getattr(error, "health_check_failure", error))
            memory = "Ray's memory monitor ended it" if LOW_MEMORY_TEXT in cause else ""
            deaths[index] = RankDeath(memory=memory, left=NODE_DIED_TEXT in cause)
        BrokerClient(self._broker).call("ranks_failed", self._trainer, deaths)
