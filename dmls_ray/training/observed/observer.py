"""What is seen of training code from outside: its optimizer steps, with their samples, tokens, losses and times."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
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
)
from dmls_ray.training.ddp import DDPTimers
from dmls_ray.training.further_steps import traced
from dmls_ray.training.observed.collectives import Collectives
from dmls_ray.training.observed.contents import content_of
from dmls_ray.training.observed.evaluations import Meaning
from dmls_ray.training.observed.gradients import Gradients
from dmls_ray.training.observed.hooks import hook
from dmls_ray.training.observed.ledger import Ledger
from dmls_ray.training.observed.loaders import batch_of
from dmls_ray.training.observed.model_inputs import ModelInputs
from dmls_ray.training.observed.model_tests import ModelTests
from dmls_ray.training.observed.seen_steps import SeenStep
from dmls_ray.training.observed.without_effect import pins_in_vain
from dmls_ray.training.optimizers import around_optimizer_steps
from dmls_ray.training.rank import Emit
from dmls_ray.training.rank_meter import RankMeter

WARMUP_STEPS = 5
"""First optimizer steps that count in no percentile; as the built-in trial's default."""

_TRACED_AFTER = 2
"""Steps before those that are traced: up to the end of the warm-up, so that no rate contains the work of a profiler."""

_READ_EVERY = 10
"""Interval in steps at which DDP's timers are read after the first ones: the models are gone at the end, and reading
takes about 10 microseconds."""

_SETTLED = 1.5
"""Time of a step over the second fastest one up to which a warm-up is over: one may be short by chance."""
_MODELS_FOUND_AFTER = (1, 3)
"""Steps after which models are looked for; some programs make a second one after their first step."""
_PROGRESS = Progress()


class ObservedSteps:
    """Counts and times the optimizer steps of training code, as `StepRule` says what a step is.

    Code that makes no optimizer, since it changes its parameters itself, makes a step with each backward pass. All of
    its time counts but tests of the model, as `ModelTests` finds them.

    Args:
        meter: of this rank; gets the timer of the steps, and has the clock that leaves instruments out.
        emit: takes the signs of progress, one for each step.
        warmup_steps: first steps that count in no percentile, at most; fewer where their times have settled.
        evaluation: what times are that look like tests of the model.
    """

    def __init__(
        self,
        meter: RankMeter,
        emit: Emit,
        warmup_steps: int = WARMUP_STEPS,
        evaluation: Meaning = "auto",
    ) -> None:
        rank, device = meter.rank, meter.device
        self.meter = meter
        self.timer = meter.time_steps(warmup_steps, self._count_from_here)
        self.count = 0
        self.inputs = ModelInputs(self._begin_forward, self._note_fault, device.type)
        self._rank, self._untimed, self._emit = rank, meter.clock.untimed, emit
        self._after = self.timer.phases.after
        self.leave_out: Callable[[], None] = functools.partial(self._after, "rest")
        """What the code did since the last mark is neither computation of a step nor a wait for data."""
        self._tracing = ExitStack()
        self._collectives = Collectives(self._note_fault, self._is_reducing)
        self._watches = rank.world_size > 1 and device.type == "cpu"
        """Whether collectives are measured."""
        self.ledger = Ledger(device, self.timer, self.inputs, self._collectives, are_tests_sure=evaluation != "auto")
        self._step = SeenStep()
        """The step under way."""
        self._tests = ModelTests(
            self.timer,
            keep=lambda batch: self._step.batches.append(batch),
            drop=self.inputs.drop,
            note=self.ledger.evaluations.append,
            drop_attack=self._drop_attack,
            meaning=evaluation,
        )
        self._thread = get_ident()
        """The thread that trains: others may read ahead."""
        self._backward_depth = 0
        """Backward passes under way; checkpointed activations are computed by one within another."""
        self._has_optimizer = False
        self._gradients = Gradients()
        self._unapplied = 0
        """Backward passes since the last step of any optimizer."""
        self._attack_from: int | None = None
        """How many backward passes of the step under way are no attack, where one is under way."""
        self._step_began = time.perf_counter()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """While the context lasts, steps and their parts are measured."""
        self.timer.begin_epoch()
        try:
            with (
                around_optimizer_steps(self.leave_out, self._end_optimizer),
                around_loader_waits(self._begin_read, self._read),
                batch_sizes_noted(),
                around_backward_passes(self._begin_backward, self._end_backward),
                before_gradients(self._before_gradients),
                after_each(DistributedDataParallel, lambda ddp: self.ledger.ddp.append(DDPTimers(ddp))),
                after_each_scaled_loss(self.ledger.losses.scaled),
                after_each(Optimizer, self._made),
                after_each(DataLoader, self._made_loader),
                self._collectives.watched() if self._watches else nullcontext(),
            ):
                yield
        finally:
            with self._untimed():
                self._tracing.close()
            self.timer.end_epoch()

    def count_work(self, samples: float = 0, tokens: float = 0) -> None:
        """Take what the code says that it has processed since its last step."""
        self._step.counted_samples += samples
        self._step.counted_tokens += tokens

    # --- hooks ------------------------------------------------------------------------------------------------------

    def _count_from_here(self) -> None:
        for model in self.ledger.ddp:
            model.count_from_here()

    def _note_fault(self, error: Exception) -> None:
        self.ledger.fault = self.ledger.fault or f"{type(error).__name__}: {error}"

    def _close_phase(self) -> None:
        """What the code did since the last mark is a forward pass, if a model was given something, or the rest."""
        self._after("forward" if self.inputs.is_given else "rest")

    @hook
    def _begin_read(self, iterator: Any) -> None:
        if get_ident() == self._thread:
            self._close_phase()
            self._tests.begin_read(iterator, with_gradients=torch.is_grad_enabled())

    @hook
    def _read(self, iterator: Any, batch: Any) -> None:
        content = content_of(batch)
        given = None if batch is None else batch_of(iterator, content)
        if given is not None and self._rank.world_size > 1:
            self.ledger.take_digest("loader", content.leaves)
        if get_ident() != self._thread:
            if given is not None:
                self._step.batches.append(given)
            return
        self._after("data_wait")
        self.inputs.read()
        self._tests.read(iterator, given, content.leaves)

    @hook
    def _made(self, optimizer: Optimizer) -> None:
        self._has_optimizer = True
        self._gradients.add(optimizer)

    @hook
    def _made_loader(self, loader: Any) -> None:
        self.ledger.pins_in_vain |= pins_in_vain(loader)

    def _begin_forward(self, with_gradients: bool, leaves: list[Any]) -> None:
        self._close_phase()
        self._tests.compute(with_gradients=with_gradients, leaves=leaves)
        if with_gradients and self._rank.world_size > 1:
            self.ledger.take_digest("model", leaves)

    @hook
    def _before_gradients(self) -> None:
        self._tests.train()

    @hook
    def _begin_backward(self, roots: Any) -> None:
        if not self._backward_depth:
            self._thread = get_ident()
            self._after("forward")
            self._tests.train()
            if self._tests.is_attack and self._attack_from is None:
                self._attack_from = len(self._step.passes)
            self.ledger.losses.begin_backward(roots)
            self._take_inputs([roots] if isinstance(roots, Tensor) else [*roots])
        self._backward_depth += 1
        # Checkpointed activations are computed again, by models that are given nothing new.
        self.inputs.is_paused = True

    @hook
    def _end_backward(self) -> None:
        self._backward_depth -= 1
        if self._backward_depth:
            return
        self.inputs.is_paused = False
        self._after("backward")
        self.ledger.backward_passes += 1
        self._unapplied += 1
        self._gradients.end_backward()
        if not self._has_optimizer:
            self._apply()
            self._end_step()

    @hook
    def _end_optimizer(self, optimizer: Optimizer) -> None:
        self._has_optimizer = True
        if is_skipped(optimizer):
            return
        unapplied, self._unapplied = self._unapplied, 0
        self._after("optimizer")
        if self.meter.agreement is not None:
            self.meter.agreement.step(optimizer)
        self._apply()
        if self.ledger.rule.ends_step(optimizer):
            self._end_step(optimizer)
            return
        for given in self._step.passes[len(self._step.passes) - unapplied :]:
            if given is not None:
                given.is_of_another = True

    def _end_step(self, optimizer: Optimizer | None = None) -> None:
        self.count += 1
        self._take_step()
        # Two profiles at once are impossible, and the code may have begun one.
        if self.count == _TRACED_AFTER and self._rank.is_traced and not is_profiling():
            with self._untimed():
                self._tracing.enter_context(traced(self._rank))
        elif self.count == WARMUP_STEPS:
            with self._untimed():
                self._tracing.close()
        if not self.timer.is_warm:
            self._end_early_step()
        if self._watches:
            self._watch_collectives()
        self.timer.step()
        if self.count <= 2 * _READ_EVERY or self.count % _READ_EVERY == 0:
            for model in self.ledger.ddp:
                model.read()
        agreement = self.meter.agreement
        if optimizer is not None and agreement is not None and agreement.is_due:
            with self.timer.paused(), self._untimed():
                agreement.sample(optimizer)
        is_first = self.count in _MODELS_FOUND_AFTER
        if is_first or (self.count % _READ_EVERY == 0 and self._is_unseen()):
            with self.timer.paused(), self._untimed():
                self._tests.watch(self.inputs.find(is_first=is_first))
        self._emit(_PROGRESS)

    def _watch_collectives(self) -> None:
        """Take those of the step that ends, if it counts, and see those of the next one."""
        if self.timer.is_warm:
            self._collectives.end_step(self.timer.phases.marks)
        self._collectives.begin_step()

    def _is_reducing(self) -> bool:
        """Whether collectives that are called now are those of DDP."""
        return bool(self.ledger.ddp) and self._backward_depth > 0

    def _take_inputs(self, roots: Sequence[Tensor] = ()) -> None:
        """Keep what the models were given for the backward pass that begins."""
        given, unused = self.inputs.take(roots)
        step = self._step
        if unused:
            step.unused = [*step.unused, *unused]
        is_new = self._attack_from is None and (given is None or not given.is_again)
        if self._unapplied and is_new and self._gradients.are_gone():
            step.dropped = [*step.dropped, *step.passes[-self._unapplied :]]
            del step.passes[-self._unapplied :]
            self._unapplied = 0
        step.passes.append(given)

    def _apply(self) -> None:
        """The gradients of the backward passes so far are applied, so that none was of a test."""
        self._tests.end_step()
        self._attack_from = None

    def _drop_attack(self) -> None:
        """No optimizer applies the backward passes that began in evaluation mode."""
        step, first = self._step, self._attack_from
        self._attack_from = None
        if first is not None:
            step.of_test += len(step.passes[first:])
            step.dropped = [*step.dropped, *step.passes[first:]]
            del step.passes[first:]
            self._unapplied = min(self._unapplied, len(step.passes))

    def _is_unseen(self) -> bool:
        """Whether the models of the last step are no longer those that were found."""
        return self.inputs.has_models and not any(self.ledger.steps[-1].passes)

    def _take_step(self) -> None:
        """Keep what the step under way had."""
        self.ledger.losses.end_step()
        step = self._step
        if not step.passes:
            self._take_inputs()  # a step without a backward pass
        step.optimizers = self.ledger.rule.optimizers
        step.is_of_several = self.ledger.rule.took_over
        self.inputs.end_step()
        self.ledger.steps.append(step)
        self._step = SeenStep()

    def _end_early_step(self) -> None:
        """A step of the warm-up ends."""
        now = time.perf_counter()
        self.ledger.early_s.append(now - self._step_began)
        self._step_began = now
        if self._is_settled():
            self.timer.end_warm_up()

    def _is_settled(self) -> bool:
        """Whether the last steps took as long as the fast ones, so that nothing is compiled or loaded any more."""
        early_s = self.ledger.early_s
        return len(early_s) >= WARMUP_STEPS and max(early_s[-2:]) <= _SETTLED * sorted(early_s)[1]
