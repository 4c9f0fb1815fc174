"""`ScriptSteps`: the steps of a script, which is told to end after the last one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from torch.optim import Optimizer

from dmls_ray.training.observed.evaluations import Meaning
from dmls_ray.training.observed.observer import WARMUP_STEPS, ObservedSteps
from dmls_ray.training.rank import Emit
from dmls_ray.training.rank_meter import RankMeter
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


class ScriptSteps(ObservedSteps):
    """Steps of a script.

    Args:
        meter: of this rank.
        emit: takes the signs of progress.
        last: the step after which the script is ended; None: it is not; auto: the 50th, or an earlier one if the
            counted steps have taken two seconds.
        meeting: where the ranks agree on it; None at world size 1.
        evaluation: what times are that look like tests of the model.
    """

    def __init__(
        self,
        meter: RankMeter,
        emit: Emit,
        last: int | Literal["auto"] | None,
        meeting: Meeting | None,
        evaluation: Meaning = "auto",
    ) -> None:
        most = _MOST_STEPS if last == "auto" else last
        warmup_steps = max(WARMUP_STEPS, _MOST_WARMUP if most is None else most // 2)
        super().__init__(meter, emit, warmup_steps, evaluation)
        self.first_step_s = math.nan
        """Seconds of the run up to the end of the first step; no number without one."""
        self.end_process: Callable[[], None] = lambda: None
        """Ends a script that goes on although it was told to end."""
        self._most, self._meeting = most, meeting
        self._may_be_fewer = last == "auto"
        self._raised = 0

    @property
    def is_at_end(self) -> bool:
        """Whether the last step was made: what the script does after it was told to end is not asked for."""
        return self._raised > 0

    @property
    def last_loss(self) -> float | None:
        """The loss of the last step; None where steps were left out, so that other runs end at another one."""
        is_cut_short = self._may_be_fewer and self.is_at_end and self.count < _MOST_STEPS
        return None if is_cut_short or not self.ledger.losses.values else self.ledger.losses.values[-1]

    def _end_step(self, optimizer: Optimizer | None = None) -> None:
        super()._end_step(optimizer)
        if self.count == 1:
            self.first_step_s = self.meter.clock.total_s
            if self._meeting is not None:
                self._meeting.begin()
        if not self._is_last():
            return
        if self._raised == _MOST_RAISED:
            self.end_process()
        elif not self._raised and self._meeting is not None:
            self._meeting.wait_for_all()
        self._raised += 1
        raise LastStep

    def _is_last(self) -> bool:
        if self._most is None:
            return False
        if self._raised or self.count >= self._most:
            return True
        if not self._may_be_fewer or self.count not in _LOOKS:
            return False
        with self.timer.paused(), self._untimed():
            counted = self.timer.step_ms
            is_enough = len(counted) >= _ENOUGH_STEPS and sum(counted) >= _ENOUGH_MS
            if self._meeting is None:
                return is_enough
            return self._meeting.is_over(self.count, wanted=is_enough)
