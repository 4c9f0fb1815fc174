"""`ScriptEnd`: the last step of a script, after which the script is told to end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from dmls_ray.training.observed.observer import ObservedSteps
from dmls_ray.training.observed.warm_up import WARMUP_STEPS
from dmls_ray.workloads.script.meeting import Meeting

_MOST_RAISED = 3
"""How often a script is told to end: one that goes on catches even what is no `Exception`."""
_MOST_WARMUP = 50
"""Steps after which a warm-up ends in any case, in a script that runs to its end."""
_MOST_STEPS = 50
"""Steps of a run whose number was not given."""
_ENOUGH_MS = 2000.0
"""Milliseconds of counted steps that suffice then: repeats say more than longer runs."""
_ENOUGH_STEPS = 5
"""Counted steps that do, at least."""
_LOOKS = (10, 15, 20, 30, 40)
"""Steps after which it is looked whether they suffice."""


class LastStep(BaseException):
    """Raised in a script after its last step; `except Exception` does not catch it."""


class ScriptEnd:
    """Ends a script after a step.

    Args:
        last: the step after which the script is ended; None: it is not; auto: the 50th, or an earlier one if the
            counted steps have taken two seconds.
        meeting: where the ranks agree on it; None at world size 1.
    """

    def __init__(self, last: int | Literal["auto"] | None, meeting: Meeting | None) -> None:
        self._most = _MOST_STEPS if last == "auto" else last
        self._may_be_fewer = last == "auto"
        self._meeting = meeting
        self._raised = 0
        self.first_step_s = math.nan
        """Seconds of the run up to the end of the first step; no number without one."""
        self.end_process: Callable[[], None] = lambda: None
        """Ends a script that goes on although it was told to end."""

    @property
    def warmup_steps(self) -> int:
        """Steps after which a warm-up ends in any case."""
        return max(WARMUP_STEPS, _MOST_WARMUP if self._most is None else self._most // 2)

    @property
    def is_reached(self) -> bool:
        """Whether the last step was made: what the script does after it was told to end is not asked for."""
        return self._raised > 0

    def last_loss(self, losses: Sequence[float | None]) -> float | None:
        """The loss of the last step; None where steps were left out, so that other runs end at another one."""
        is_cut_short = self._may_be_fewer and self.is_reached and len(losses) < _MOST_STEPS
        return None if is_cut_short or not losses else losses[-1]

    def step_ended(self, steps: ObservedSteps) -> None:
        """A step has ended.

        Raises:
            LastStep: it was the last one.
        """
        if steps.count == 1:
            self.first_step_s = steps.meter.clock.total_s
            if self._meeting is not None:
                self._meeting.begin()
        if not self._is_last(steps):
            return
        if self._raised == _MOST_RAISED:
            self.end_process()
        elif not self._raised and self._meeting is not None:
            self._meeting.wait_for_all()
        self._raised += 1
        raise LastStep

    def _is_last(self, steps: ObservedSteps) -> bool:
        if self._most is None:
            return False
        if self._raised or steps.count >= self._most:
            return True
        if not self._may_be_fewer or steps.count not in _LOOKS:
            return False
        with steps.timer.paused(), steps.meter.clock.untimed():
            counted = steps.timer.step_ms
            is_enough = len(counted) >= _ENOUGH_STEPS and sum(counted) >= _ENOUGH_MS
            if self._meeting is None:
                return is_enough
            return self._meeting.is_over(steps.count, wanted=is_enough)
