"""`BrokerClient`: calls of other processes to the broker.

Loads no PyTorch, since Train's controller imports it as well.
"""

from __future__ import annotations

from typing import Any

import ray

from dmls_ray.cluster.connect import NAMESPACE


class BrokerClient:
    """The broker, seen from another process. Ray repeats a call while the network between the two fails.

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
        """Call, wait, and return the answer.

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
        return ray.get(self.submit(method, *args, **options), timeout=timeout)
