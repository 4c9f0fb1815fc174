"""An event loop in which waiting takes no time, and in which waiting without a clock is an error."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

LONGEST_S = 20_000.0
"""Virtual seconds after which a test ends: the scheduler only turns in a circle then."""


class WaitsForEver(AssertionError):
    """All coroutines wait and no timer runs, or timers never end the wait."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time jumps to the next timer as soon as all coroutines wait."""

    def __init__(self) -> None:
        self._time = 0.0
        self.is_at_end = False
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._time

    def jump(self, seconds: float | None) -> None:
        """Go to the next timer; None: there is none."""
        self._time += seconds or 0.0
        if self.is_at_end:
            return  # it only cancels what is left
        if seconds is None or self._time > LONGEST_S:
            self.is_at_end = True
            raise WaitsForEver("all coroutines wait, and no timer runs" if seconds is None else "nothing ends the wait")


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout != 0:
            self._loop.jump(timeout)
        return super().select(0)


def run_virtually(test: Coroutine[Any, Any, None]) -> None:
    """Run a test of the scheduler; neither its timers nor its sleeps take time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        time = SimpleNamespace(monotonic=runner.get_loop().time)
        with patch("dmls_ray.cluster.scheduler.clock.time", time):
            runner.run(test)
