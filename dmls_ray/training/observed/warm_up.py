"""`WarmUp`: when the first steps of a training are over, which take longer than the others."""

from __future__ import annotations

import time

WARMUP_STEPS = 5
"""First optimizer steps that count in no percentile; as the built-in trial's default."""
_SETTLED = 1.5
"""Time of a step over the second fastest one up to which a warm-up is over: one may be short by chance."""


class WarmUp:
    """The times of the steps up to the end of the warm-up, by the host's clock."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._step_began = time.perf_counter()

    def step_ended(self) -> bool:
        """A step of the warm-up has ended; returns whether the next one is the last of them."""
        now = time.perf_counter()
        self.seconds.append(now - self._step_began)
        self._step_began = now
        return self.is_settled

    @property
    def is_settled(self) -> bool:
        """Whether the last steps took as long as the fast ones, so that nothing is compiled or loaded any more."""
        seconds = self.seconds
        return len(seconds) >= WARMUP_STEPS and max(seconds[-2:]) <= _SETTLED * sorted(seconds)[1]
