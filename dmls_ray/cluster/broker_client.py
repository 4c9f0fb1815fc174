"""`BrokerClient`: calls of other processes to the broker.

Loads no PyTorch, since Train's controller imports it as well.
"""

from __future__ import annotations

import time
from typing import Any

import ray

from dmls_ray.cluster.connect import NAMESPACE

NETWORK_TIMEOUT_S = 60.0
"""How long the network between a machine and the broker may fail."""

RETRY_INTERVAL_S = 0.1
"""Seconds until a broker that the network hides is called again."""


class BrokerClient:
    """The broker, seen from another process.

    Args:
        name: name of the broker's actor.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._actor: Any = None

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
