"""`Communication`: what a rank communicates in its steps, and the parts of a step without it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch.nn.parallel import DistributedDataParallel

from dmls_ray.training.clocks import StepTimer
from dmls_ray.training.ddp import DDPTimers, with_exposed
from dmls_ray.training.observed.collectives import Collectives
from dmls_ray.training.observed.hooks import Faults

_READ_EVERY = 10
"""Interval in steps at which DDP's timers are read after the first ones: the models are gone at the end, and reading
takes about 10 microseconds."""
_WITHOUT_BACKWARD = ("data_wait_ms", "optimizer_ms", "rest_ms")
"""Parts of a step that are known without a backward pass."""


class Communication:
    """The timers of DDP's reducers, and the waits of this rank for other collectives.

    Args:
        timer: of the steps.
        faults: takes what failed in looking.
        is_watched: whether collectives are measured.
    """

    def __init__(self, timer: StepTimer, faults: Faults, *, is_watched: bool) -> None:
        self._timer = timer
        self._is_watched = is_watched
        self._collectives = Collectives(faults, lambda: bool(self._ddp) and self._is_in_backward)
        self._step_began = faults.guarded(self._collectives.step_began)
        self._step_ended = faults.guarded(self._collectives.step_ended)
        self._ddp: list[DDPTimers] = []
        self._is_in_backward = False
        self.backward_passes = 0

    def watched(self) -> AbstractContextManager[None]:
        """While the context lasts, collectives are seen."""
        return self._collectives.watched() if self._is_watched else nullcontext()

    def ddp_made(self, model: DistributedDataParallel) -> None:
        """The program has wrapped a model."""
        self._ddp.append(DDPTimers(model))

    def warm_up_ended(self) -> None:
        """The steps count from here on."""
        for timers in self._ddp:
            timers.count_from_here()

    def backward_began(self) -> None:
        """A backward pass has begun, in which DDP calls collectives."""
        self._is_in_backward = True

    def backward_ended(self) -> None:
        """A backward pass has ended."""
        self._is_in_backward = False
        self.backward_passes += 1

    def step_ended(self) -> None:
        """A step has ended, of which the clock does not know yet."""
        if self._is_watched:
            if self._timer.is_warm:
                self._step_ended(self._timer.phases.marks)
            self._step_began()

    def step_counted(self, number: int) -> None:
        """The clock has the step of this number."""
        if number <= 2 * _READ_EVERY or number % _READ_EVERY == 0:
            for timers in self._ddp:
                timers.read()

    @property
    def unseen(self) -> int:
        """Collectives of which no wait was seen."""
        return self._collectives.unseen

    def hooks_without_effect(self) -> list[str]:
        """Hooks of DDP that changed nothing."""
        return [hook for timers in self._ddp for hook in timers.hooks_without_effect(self.backward_passes)]

    def parts_ms(self) -> dict[str, float]:
        """Milliseconds of the parts of a counted step, with its communication.

        Without a backward pass that was seen, what precedes the optimizer is in `rest_ms` alone.
        """
        communication = self._ddp_ms()
        parts = self._timer.phases.parts_ms(communication.get("exposed_comm_ms", 0.0))
        if not parts:
            return {}
        if waits := self._collectives.mean_ms():
            communication |= waits
            communication["exposed_comm_ms"] = communication.get("exposed_comm_ms", 0.0) + sum(waits.values())
            for phase, ms in self._collectives.mean_ms_of_phases().items():
                parts[f"{phase}_ms"] = max(parts[f"{phase}_ms"] - ms, 0.0)
        if not self.backward_passes:
            parts = {name: parts[name] for name in _WITHOUT_BACKWARD}
        return {**communication, **parts}

    def _ddp_ms(self) -> dict[str, float]:
        """Milliseconds of an optimizer step, over all models that were under DDP; empty without."""
        steps = len(self._timer.step_ms)
        if not steps:
            return {}
        sums = {"comm_ms": 0.0, "overlap_ms": 0.0}
        for model in self._ddp:
            for name, ms in model.pass_ms().items():
                sums[name] += ms * model.passes / steps
        return with_exposed(sums)
