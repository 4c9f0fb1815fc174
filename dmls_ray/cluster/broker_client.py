"""`BrokerClient`: calls that survive the death of a broker.

Loads no PyTorch, since Train's controller imports it as well.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import ray

from dmls_ray.cluster.connect import NAMESPACE

BROKER_RESTART_TIMEOUT_S = 60.0
"""How long a broker that died may take to be replaced."""


MAX_GENERATION_GAP = 5
"""How many brokers may have died unnoticed by a client."""


def actor_name(name: str, generation: int) -> str:
    """Actor name of the broker of a generation, from 0: Ray does not release the name of a dead actor at once."""
    return f"{name}.{generation}"


class BrokerClient:
    """Client of the current broker actor. Reconnects to its replacement if the broker dies."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._generation = -1
        self._handle: Any = None

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call, wait, and return the answer; if the broker dies meanwhile, call its replacement.

        Raises:
            RayActorError: no broker came back in time.
        """
        until = time.monotonic() + BROKER_RESTART_TIMEOUT_S
        while True:
            try:
                return self.call_once(method, *args, **options)
            except ray.exceptions.RayActorError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def call_once(self, method: str, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        """Call, wait, and return the answer.

        Args:
            method: the name of the method.
            args: its arguments.
            timeout: how long to wait; None during a sweep, in which a broker that does not answer is replaced.
            options: its arguments by name.

        Raises:
            RayActorError: there is no broker now, or it died over the call.
            GetTimeoutError: it did not answer in time.
        """
        try:
            return ray.get(self.submit(method, *args, **options), timeout=timeout)
        except ray.exceptions.RayActorError:
            self._find_newest()
            raise

    def submit(self, method: str, *args: Any, **options: Any) -> Any:
        """Call without waiting; returns the answer to come.

        Raises:
            RayActorError: there is no broker now.
        """
        if self._handle is None:
            self._find_newest()
        if self._handle is None:
            raise ray.exceptions.RayActorError(error_msg=f"There is no actor {self.name}.")
        return getattr(self._handle, method).remote(*args, **options)

    def _find_newest(self) -> None:
        """Connect to the newest broker; several may have died since the last call."""
        # Several threads may look at once, so none counts on from where another is.
        newest = self._generation
        generation = newest + 1
        while generation <= newest + MAX_GENERATION_GAP:
            # Ray does not resolve the name of a dead actor; a later one may still be alive.
            with contextlib.suppress(ValueError):
                self._handle = ray.get_actor(actor_name(self.name, generation), namespace=NAMESPACE)
                self._generation = newest = generation
            generation += 1
