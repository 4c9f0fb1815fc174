"""`HeadWatch`: whether the head of a cluster that was joined still answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dmls_ray.cluster.joining import no_answer
from dmls_ray.util.errors import ClusterLostError

_LOST = "The head of the Ray cluster does not answer any more"
_LOOK_S = 2.0
HEAD_TIMEOUT_S = 20.0
"""How long nothing may listen at the head's address: Ray ends this process after a minute."""


class HeadWatch:
    """A thread that looks whether the head answers, since calls to Ray may wait for ever once it does not.

    Args:
        address: HOST:PORT of the head.
        on_lost: called with the reason when the head has not answered for long.
    """

    def __init__(self, address: str, on_lost: Callable[[str], None]) -> None:
        self._address, self._on_lost = address, on_lost
        self._refused_since: float | None = None
        """Since when nothing listens there."""
        self._is_over = threading.Event()
        threading.Thread(target=self._follow, name="dmls-ray-head", daemon=True).start()

    def check(self) -> bool:
        """Whether the head answers now.

        Raises:
            ClusterLostError: it has not for long.
        """
        if self._is_lost:
            raise ClusterLostError(_LOST)
        return self._refused_since is None

    def end(self) -> None:
        """Look no more."""
        self._is_over.set()

    @property
    def _is_lost(self) -> bool:
        return self._refused_since is not None and time.monotonic() - self._refused_since > HEAD_TIMEOUT_S

    def _follow(self) -> None:
        while not self._is_lost and not self._is_over.wait(_LOOK_S):
            if no_answer(self._address) is None:
                self._refused_since = None
            else:
                self._refused_since = self._refused_since or time.monotonic()
        if self._is_lost:
            self._on_lost(_LOST)
