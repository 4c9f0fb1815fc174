"""`ObservedSteps`: hooks of PyTorch that tell what training code does to the objects that each see a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from dmls_ray.records.run_events import Progress
from dmls_ray.training.compat import (
    after_each,
    after_each_scaled_loss,
    around_backward_passes,
    around_loader_waits,
    batch_sizes_noted,
    before_gradients,
    is_profiling,
    is_skipped,
    is_transformed,
)
from dmls_ray.training.further_steps import traced
from dmls_ray.training.observed.communication import Communication
from dmls_ray.training.observed.contents import content_of
from dmls_ray.training.observed.counted_step import CountedStep
from dmls_ray.training.observed.evaluations import Meaning
from dmls_ray.training.observed.first_batches import FirstBatches
from dmls_ray.training.observed.hooks import Faults
from dmls_ray.training.observed.leader import StepRule
from dmls_ray.training.observed.loaders import batch_of
from dmls_ray.training.observed.losses import StepLosses
from dmls_ray.training.observed.model_inputs import ModelInputs
from dmls_ray.training.observed.model_tests import ModelTests
from dmls_ray.training.observed.models import Models
from dmls_ray.training.observed.number_format import SeenFormat
from dmls_ray.training.observed.seen_steps import SeenStep
from dmls_ray.training.observed.step_under_way import StepUnderWay
from dmls_ray.training.observed.warm_up import WARMUP_STEPS, WarmUp
from dmls_ray.training.observed.without_effect import Orders, pins_in_vain
from dmls_ray.training.optimizers import around_optimizer_steps
from dmls_ray.training.rank import Emit
from dmls_ray.training.rank_meter import RankMeter

_TRACED_AFTER = 2
"""Steps before those that are traced: up to the end of the warm-up, so that no rate contains the work of a profiler."""
_MODELS_FOUND_AFTER = (1, 3)
"""Steps after which models are looked for; some programs make a second one after their first step."""
_LOOKED_AGAIN_EVERY = 10
"""Interval in steps at which it is looked whether the models are still those that were found."""
_PROGRESS = Progress()


class ObservedSteps:
    """Counts and times the optimizer steps of training code, as `StepRule` says what a step is.

    All of their time counts but tests of the model, as `ModelTests` finds them.

    Args:
        meter: of this rank; gets the timer of the steps, and has the clock that leaves instruments out.
        emit: takes the signs of progress, one for each step.
        warmup_steps: first steps that count in no percentile, at most; fewer where their times have settled.
        evaluation: what times are that look like tests of the model.
        step_ended: called after each step.
    """

    def __init__(
        self,
        meter: RankMeter,
        emit: Emit,
        warmup_steps: int = WARMUP_STEPS,
        evaluation: Meaning = "auto",
        step_ended: Callable[[ObservedSteps], None] = lambda steps: None,
    ) -> None:
        rank, device = meter.rank, meter.device
        self.meter = meter
        self.timer = meter.time_steps(warmup_steps, lambda: self.communication.warm_up_ended())
        self._emit = emit
        self._on_step_ended = step_ended

        self.faults = Faults()
        self.rule = StepRule()
        self.losses = StepLosses()
        self.inputs = ModelInputs()
        self.number_format = SeenFormat(device.type)
        self.models = Models(self.faults.guarded(self._forward_began))
        self.step = StepUnderWay()
        self.steps: list[SeenStep] = []
        """Those that have ended."""
        self.tests = ModelTests(self.timer, self.step, self.inputs, evaluation)
        is_watched = rank.world_size > 1 and device.type == "cpu"
        self.communication = Communication(self.timer, self.faults, is_watched=is_watched)
        self.first_batches = FirstBatches() if rank.world_size > 1 else None
        """What ranks are compared by."""
        self.warm_up = WarmUp()
        self.operations = CountedStep()
        self.pins_in_vain = False
        """Whether a loader was to copy its batches to pinned memory, and does not."""

        self.orders = Orders()

        self._tracing = ExitStack()
        self._thread = get_ident()
        """The thread that trains: others may read ahead."""
        self._backward_depth = 0
        """Backward passes under way; checkpointed activations are computed by one within another."""

    @property
    def count(self) -> int:
        """How many steps have ended."""
        return len(self.steps)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """While the context lasts, steps and their parts are measured."""
        guarded = self.faults.guarded
        self.timer.begin_epoch()
        try:
            with (
                around_optimizer_steps(guarded(self._optimizer_began), guarded(self._optimizer_stepped)),
                around_loader_waits(guarded(self._read_began), guarded(self._batch_read)),
                batch_sizes_noted(),
                around_backward_passes(guarded(self._backward_began), guarded(self._backward_ended)),
                before_gradients(guarded(self.tests.backward_began)),
                after_each(DistributedDataParallel, guarded(self.communication.ddp_made)),
                after_each_scaled_loss(guarded(self.losses.loss_scaled)),
                after_each(Optimizer, guarded(self._optimizer_made)),
                after_each(DataLoader, guarded(self._loader_made)),
                self.communication.watched(),
            ):
                yield
        finally:
            self.operations.end(0, tests=0)
            with self.meter.clock.untimed():
                self._tracing.close()
            self.timer.end_epoch()

    def leave_out(self) -> None:
        """What the code did since the last mark is neither computation of a step nor a wait for data."""
        self.timer.phases.after("rest")

    # --- hooks ------------------------------------------------------------------------------------------------------

    def _optimizer_made(self, optimizer: Optimizer) -> None:
        self.rule.optimizer_made()
        self.step.optimizer_made(optimizer)

    def _loader_made(self, loader: Any) -> None:
        self.pins_in_vain |= pins_in_vain(loader)

    def _read_began(self, iterator: Any) -> None:
        if get_ident() == self._thread:
            self._end_phase()
            self.tests.read_began(iterator, with_gradients=torch.is_grad_enabled())

    def _batch_read(self, iterator: Any, batch: Any) -> None:
        content = content_of(batch)
        given = None if batch is None else batch_of(iterator, content)
        if given is not None and self.first_batches is not None:
            self.first_batches.loader_read(content.leaves)
        if get_ident() == self._thread:
            self.timer.phases.after("data_wait")
            self.orders.batch_read(iterator, batch)
            self.inputs.batch_read()
            self.tests.batch_read(iterator, given, content.leaves)
        elif given is not None:
            self.step.batch_read(given)

    def _forward_began(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Checkpointed activations are computed again in a backward pass, by models that are given nothing new.
        if self._backward_depth or is_transformed():
            return
        content = content_of(args[0] if len(args) == 1 and not kwargs else (*args, *kwargs.values()))
        with_gradients = torch.is_grad_enabled()
        self._end_phase()
        self.tests.forward_began(with_gradients=with_gradients, leaves=content.leaves)
        if not with_gradients:
            return
        if self.first_batches is not None:
            self.first_batches.model_given(content.leaves)
        self.number_format.forward_began(module)
        self.inputs.forward_began(module, content, is_list=bool(args) and isinstance(args[0], list | tuple))

    def _backward_began(self, roots: Any, weights: Any) -> None:
        self._backward_depth += 1
        if self._backward_depth > 1:
            return
        self._thread = get_ident()
        self.orders.backward_began()
        self.timer.phases.after("forward")
        self.communication.backward_began()
        if self.tests.backward_began():
            self.step.attack_began()
        self.losses.backward_began(roots, weights)
        self.step.backward_began(*self.inputs.backward_began([roots] if isinstance(roots, Tensor) else [*roots]))

    def _backward_ended(self) -> None:
        self._backward_depth -= 1
        if self._backward_depth:
            return
        self.timer.phases.after("backward")
        self.communication.backward_ended()
        self.step.backward_ended()
        if not self.rule.has_optimizer:
            self._apply_gradients(by_another=False)
            self._end_step()

    def _optimizer_began(self) -> None:
        self.leave_out()
        self.operations.counter.in_optimizer = True

    def _optimizer_stepped(self, optimizer: Optimizer) -> None:
        self.operations.counter.in_optimizer = False
        self.rule.optimizer_made()
        if is_skipped(optimizer):
            return
        self.timer.phases.after("optimizer")
        if self.meter.agreement is not None:
            self.meter.agreement.step(optimizer)
        is_end = self.rule.optimizer_stepped(optimizer)
        self._apply_gradients(by_another=not is_end)
        if is_end:
            self._end_step(optimizer)

    # --- what follows -----------------------------------------------------------------------------------------------

    def _end_phase(self) -> None:
        """What the code did since the last mark is a forward pass, if a model was given something, or the rest."""
        self.timer.phases.after("forward" if self.inputs.is_given else "rest")

    def _apply_gradients(self, *, by_another: bool) -> None:
        self.tests.gradients_applied()
        self.step.gradients_applied(by_another=by_another)

    def _end_step(self, optimizer: Optimizer | None = None) -> None:
        """The step under way has ended; each line has its place in the order, since marks and clocks go by it."""
        self._keep_step()
        self.operations.end(self.count, tests=len(self.tests.found))
        self._trace()
        if not self.timer.is_warm and self.warm_up.step_ended():
            self.timer.end_warm_up()
        self.communication.step_ended()
        self.timer.step()
        self.communication.step_counted(self.count)
        agreement = self.meter.agreement
        if optimizer is not None and agreement is not None and agreement.is_due:
            with self.timer.paused(), self.meter.clock.untimed():
                agreement.sample(optimizer)
        self._find_models()
        if not self.timer.is_warm:
            self.operations.begin(tests=len(self.tests.found), has_compiled=self.models.has_compiled)
        self._emit(_PROGRESS)
        self._on_step_ended(self)

    def _keep_step(self) -> None:
        self.losses.step_ended()
        if not self.step.seen.passes:
            self.step.backward_began(*self.inputs.backward_began())  # a step without a backward pass
        self.inputs.step_ended()
        step = self.step.step_ended()
        step.optimizers = self.rule.optimizers
        step.is_of_several = self.rule.took_over
        step.counted_samples, step.counted_tokens = self.meter.rank.work.take()
        self.steps.append(step)

    def _trace(self) -> None:
        # Two profiles at once are impossible, and the code may have begun one.
        if self.count == _TRACED_AFTER and self.meter.rank.is_traced and not is_profiling():
            with self.meter.clock.untimed():
                self._tracing.enter_context(traced(self.meter.rank))
        elif self.count == WARMUP_STEPS:
            with self.meter.clock.untimed():
                self._tracing.close()

    def _find_models(self) -> None:
        is_first = self.count in _MODELS_FOUND_AFTER
        is_gone = self.count % _LOOKED_AGAIN_EVERY == 0 and self.models.parameters and not any(self.steps[-1].passes)
        if is_first or is_gone:
            with self.timer.paused(), self.meter.clock.untimed():
                self.tests.modes.watch(self.models.find(is_first=is_first))
