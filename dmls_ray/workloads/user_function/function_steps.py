"""`FunctionSteps`: the optimizer steps of a user-defined function and where their time goes, as seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dmls_ray.records.run_events import Progress
from dmls_ray.training.clocks import StepTimer
from dmls_ray.training.compat import after_each_ddp, around_backward_passes, around_loader_waits, is_profiling
from dmls_ray.training.ddp_timers import DDPTimers, with_exposed
from dmls_ray.training.rank import Emit
from dmls_ray.training.rank_agreement import AgreementMeter
from dmls_ray.training.step_hooks import around_optimizer_steps

_WARMUP_STEPS = 5
"""First optimizer steps that count in no percentile; as the built-in trial's default."""

_TRACED_AFTER = 2
"""Steps before those that are traced: up to the end of the warm-up, so that no rate contains the work of a profiler."""

_READ_EVERY = 10
"""Interval in steps at which DDP's timers are read after the first ones: the function's models are gone at its end, and
reading takes about 10 microseconds."""

_WITHOUT_BACKWARD = ("data_wait_ms", "optimizer_ms", "rest_ms")
"""Parts of a step that are known without a backward pass."""


class FunctionSteps:
    """Counts and times optimizer steps as `around_optimizer_steps` does; each is a sign of progress.

    Args:
        device: the rank's device.
        emit: takes the signs of progress.
        agreement: notified of each step and each backward pass.
        untimed: context of the work of `agreement` and of a trace, which no time of the run contains.
        trace: context of the steps that are traced, if any are.
    """

    def __init__(
        self,
        device: torch.device,
        emit: Emit,
        agreement: AgreementMeter | None = None,
        untimed: Callable[[], AbstractContextManager[None]] = nullcontext,
        trace: AbstractContextManager[None] | None = None,
    ) -> None:
        self.timer = StepTimer(device, _WARMUP_STEPS, on_warm=self._count_from_here)
        self.count = 0
        self._agreement, self._untimed = agreement, untimed
        self._trace, self._tracing = trace, ExitStack()
        self._emit = emit
        self._backward_depth = 0
        """Backward passes under way; checkpointed activations are computed by one within another."""
        self._has_backward = False
        self._models: list[DDPTimers] = []

    @contextmanager
    def counted(self) -> Iterator[None]:
        """While the context lasts, steps and their parts are measured."""
        self.timer.begin_epoch()
        after = self.timer.phases.after
        try:
            with (
                around_optimizer_steps(self.leave_out, self._step),
                around_loader_waits(self.leave_out, lambda: after("data_wait")),
                around_backward_passes(self._begin_backward, self._end_backward),
                after_each_ddp(self._add),
            ):
                yield
        finally:
            with self._untimed():
                self._tracing.close()
            self.timer.end_epoch()

    def leave_out(self) -> None:
        """What the function did since the last mark is neither computation of a step nor a wait for data."""
        self.timer.phases.after("rest")

    def parts_ms(self) -> dict[str, float]:
        """Milliseconds of the parts of a counted step, and of its communication under DDP.

        Without a backward pass that was seen, what precedes the optimizer is in `rest_ms` alone.
        """
        communication = self._communication_ms()
        parts = self.timer.phases.parts_ms(communication.get("exposed_comm_ms", 0.0), 0.0)
        seen = parts if self._has_backward else {name: parts[name] for name in parts if name in _WITHOUT_BACKWARD}
        return {**communication, **seen} if parts else {}

    def _communication_ms(self) -> dict[str, float]:
        """Milliseconds of an optimizer step, over all models that were under DDP; empty without."""
        steps = len(self.timer.step_ms)
        sums = {"comm_ms": 0.0, "overlap_ms": 0.0}
        for model in self._models:
            for name, ms in model.pass_ms().items():
                sums[name] += ms * model.passes
        return with_exposed({name: ms / steps for name, ms in sums.items()}) if steps else {}

    def _add(self, ddp: DistributedDataParallel) -> None:
        self._models.append(DDPTimers(ddp))

    def _count_from_here(self) -> None:
        for model in self._models:
            model.count_from_here()

    def _begin_or_end_trace(self, trace: AbstractContextManager[None]) -> None:
        # Two profiles at once are impossible, and the function may have begun one.
        if self.count == _TRACED_AFTER and not is_profiling():
            self._tracing.enter_context(trace)
        elif self.count == _WARMUP_STEPS:
            self._tracing.close()

    def _begin_backward(self, tensors: Any) -> None:
        if not self._backward_depth:
            self._has_backward = True
            self.timer.phases.after("forward")
            if self._agreement is not None:
                self._agreement.backward(tensors)
        self._backward_depth += 1

    def _end_backward(self) -> None:
        self._backward_depth -= 1
        if not self._backward_depth:
            self.timer.phases.after("backward")

    def _step(self, optimizer: Optimizer) -> None:
        self.count += 1
        if self._trace is not None and self.count in (_TRACED_AFTER, _WARMUP_STEPS):
            with self._untimed():
                self._begin_or_end_trace(self._trace)
        self.timer.phases.after("optimizer")
        self.timer.step()
        if self.count <= 2 * _READ_EVERY or self.count % _READ_EVERY == 0:
            for model in self._models:
                model.read()
        if self._agreement is not None:
            self._agreement.step(optimizer)
            if self._agreement.is_due:
                with self.timer.paused(), self._untimed():
                    self._agreement.sample(optimizer)
        self._emit(Progress())
        self.leave_out()
