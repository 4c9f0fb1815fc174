"""`ScriptSteps`: the steps of a script, which is told to end after the last one."""

from __future__ import annotations

from collections.abc import Callable

from torch.optim import Optimizer

from dmls_ray.training.clocks import PhaseClock
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.observer import WARMUP_STEPS, ObservedSteps

_MOST_RAISED = 3
"""How often a script is told to end: one that goes on catches even what is no `Exception`."""
_MOST_WARMUP = 50
"""Steps after which a warm-up ends in any case, in a script that runs to its end."""


class LastStep(BaseException):
    """Raised in a script after its last step; `except Exception` does not catch it."""


class ScriptSteps(ObservedSteps):
    """Steps of a script.

    Args:
        rank: this rank.
        emit: takes the signs of progress.
        clock: of the run.
        last: the step after which the script is ended; None: it is not.
        on_last: called after that step, before the script is ended.
    """

    def __init__(
        self, rank: RankInfo, emit: Emit, clock: PhaseClock, last: int | None, on_last: Callable[[], None]
    ) -> None:
        super().__init__(rank, emit, clock, max(WARMUP_STEPS, _MOST_WARMUP if last is None else last // 2))
        self.first_step_s: float | None = None
        """Seconds of the run up to the end of the first step."""
        self.end_process: Callable[[], None] = lambda: None
        """Ends a script that goes on although it was told to end."""
        self._clock, self._last, self._on_last = clock, last, on_last
        self._raised = 0

    @property
    def is_at_end(self) -> bool:
        """Whether the last step was made: what the script does after it was told to end is not asked for."""
        return self._raised > 0

    def _end_step(self, optimizer: Optimizer | None = None) -> None:
        super()._end_step(optimizer)
        if self.first_step_s is None:
            self.first_step_s = self._clock.total_s
        if self._last is None or self.count < self._last:
            return
        if not self._raised:
            self._on_last()
        elif self._raised == _MOST_RAISED:
            self.end_process()
        self._raised += 1
        raise LastStep
