"""What is seen of training code from outside: its optimizer steps, with their samples, tokens, losses and times."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dmls_ray.records.run_events import Progress
from dmls_ray.training.clocks import PhaseClock, StepTimer
from dmls_ray.training.compat import (
    after_each,
    after_each_scaled_loss,
    around_backward_passes,
    around_loader_waits,
    is_profiling,
)
from dmls_ray.training.ddp import DDPTimers, with_exposed
from dmls_ray.training.energy import PowerMeter
from dmls_ray.training.further_steps import traced
from dmls_ray.training.optimizers import around_optimizer_steps
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.rank_agreement import AgreementMeter
from dmls_ray.workloads.model_inputs import ModelInputs, first_tensor, samples_in
from dmls_ray.workloads.seen_steps import Seen, SeenSteps, describe_count

WARMUP_STEPS = 5
"""First optimizer steps that count in no percentile; as the built-in trial's default."""

_TRACED_AFTER = 2
"""Steps before those that are traced: up to the end of the warm-up, so that no rate contains the work of a profiler."""

_READ_EVERY = 10
"""Interval in steps at which DDP's timers are read after the first ones: the models are gone at the end, and reading
takes about 10 microseconds."""

_WITHOUT_BACKWARD = ("data_wait_ms", "optimizer_ms", "rest_ms")
"""Parts of a step that are known without a backward pass."""

_SETTLED = 1.5
"""Time of a step over the fastest one up to which a warm-up is over."""
_MODELS_FOUND_AFTER = (1, 3)
"""Steps after which models are looked for; some programs make a second one after their first step."""
_MOST_OF_OTHERS = 10
"""Steps of other optimizers after which the first one leads no more; in adversarial training they are fewer."""
_LOSSES_READ_AT = 256
"""Steps after which losses are read, which waits for the device: until then each is a tensor."""
_PROGRESS = Progress()
_EARLY_STEPS = 3
"""Steps whose losses say whether two runs train the same: the later ones follow from updates."""


class ObservedSteps:
    """Counts and times the steps of the first optimizer; those of others are part of them.

    Code that makes no optimizer, since it changes its parameters itself, makes a step with each backward pass. A step
    in which a model was tested does not count. Where the first optimizer makes no more steps, another one leads.

    Args:
        rank: this rank.
        emit: takes the signs of progress, one for each step.
        clock: leaves the work of `agreement` and of a trace out of the times of the run.
        warmup_steps: first steps that count in no percentile, at most; fewer where their times have settled.
    """

    def __init__(self, rank: RankInfo, emit: Emit, clock: PhaseClock, warmup_steps: int = WARMUP_STEPS) -> None:
        self.timer = StepTimer(
            torch.device(rank.device), warmup_steps, on_warm=self._count_from_here, power=PowerMeter.of(rank)
        )
        self.count = 0
        self.backward_passes = 0
        # It keeps the parameters of optimizers that the code no longer needs.
        self.agreement = AgreementMeter() if rank.world_size > 1 else None
        self.inputs = ModelInputs(self.leave_out, self._end_forward, self._interrupt, torch.device(rank.device).type)
        self._rank, self._untimed, self._emit = rank, clock.untimed, emit
        self._tracing = ExitStack()
        self._backward_depth = 0
        """Backward passes under way; checkpointed activations are computed by one within another."""
        self._ddp: list[DDPTimers] = []
        self._leader: weakref.ref[Optimizer] | None = None
        self._has_optimizer = False
        self._samples_loaded = 0
        """Samples that loaders gave since the last step."""
        self._counted = [0.0, 0.0]
        """Samples and tokens that the code counted since the last step."""
        self._losses: list[Tensor] = []
        """Losses of the backward passes since the last step, on the device."""
        self._unread: list[list[Tensor]] = []
        """The losses of the last steps."""
        self._read: list[float | None] = []
        """Those of the steps before, over their backward passes."""
        self._unscaled: tuple[int, Any] = (0, None)
        """The scaled loss, by its id, and the loss."""
        self._seen = SeenSteps()
        self._step_began = time.perf_counter()
        self._early_s: list[float] = []
        """Seconds of the steps of the warm-up, by the host's clock."""
        self._is_interrupted = False
        """Whether a model was given something without gradients in the step under way."""
        self._has_seen_models = False
        self._steps_of_others = 0
        """Steps of other optimizers since the last one of the first."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """While the context lasts, steps and their parts are measured."""
        self.timer.begin_epoch()
        try:
            with (
                around_optimizer_steps(self.leave_out, self._step),
                around_loader_waits(self.leave_out, self._loaded),
                around_backward_passes(self._begin_backward, self._end_backward),
                after_each(DistributedDataParallel, lambda ddp: self._ddp.append(DDPTimers(ddp))),
                after_each_scaled_loss(self._scaled),
                after_each(Optimizer, self._made),
            ):
                yield
        finally:
            with self._untimed():
                self._tracing.close()
            self.timer.end_epoch()

    def leave_out(self, *_: Any) -> None:
        """What the code did since the last mark is neither computation of a step nor a wait for data."""
        self.timer.phases.after("rest")

    def count_work(self, samples: float = 0, tokens: float = 0) -> None:
        """Take what the code says that it has processed since its last step."""
        self._counted[0] += samples
        self._counted[1] += tokens

    # --- what was seen ----------------------------------------------------------------------------------------------

    @property
    def losses(self) -> list[float | None]:
        """The loss of each step, over its backward passes; None where a root of a backward pass is no number."""
        self._read += [math.fsum(map(float, step)) / len(step) if step else None for step in self._unread]
        self._unread = []
        return self._read

    @property
    def early_loss(self) -> float | None:
        """The mean loss of the first steps."""
        early = [loss for loss in self.losses[:_EARLY_STEPS] if loss is not None]
        return fmean(early) if early else None

    @property
    def counted_by(self) -> str:
        """How samples are known: by the code's own count, from loaders, models, or both; empty if they are not."""
        return describe_count(self._mean())

    def rates(self) -> dict[str, float | None]:
        """Samples, tokens and backward passes of a step of this rank, its rates, and the loss of its first steps."""
        seen = self._mean()
        # Code that ends within its warm-up has steps, too: the later half of them. On a GPU the host only issues them.
        early_s = self._early_s[len(self._early_s) // 2 :]
        if self._rank.device.startswith("cuda") or not early_s:
            early_s = [math.inf]
        seconds = fmean(self.timer.step_ms) / 1e3 if self.timer.step_ms else fmean(early_s)
        return {
            "samples_per_step": self._seen.usual_samples or None,
            "tokens_per_step": self._seen.usual_tokens or None,
            "samples_per_s": seen.all_samples / seconds or None,
            "tokens_per_s": seen.all_tokens / seconds or None,
            "backward_passes": self.backward_passes / self.count if self.backward_passes and self.count else None,
            "early_loss": self.early_loss,
        }

    def facts(self) -> dict[str, Any]:
        """What else was seen, by name; without what was not."""
        facts = {
            "counted_by": self.counted_by,
            "number_format": self.inputs.number_format,
            "first_loss": self.losses[0] if self.losses else None,
        }
        return {name: value for name, value in facts.items() if value not in ("", None)}

    def _mean(self) -> Seen:
        """What a counted step had."""
        return self._seen.mean(len(self.timer.step_ms))

    def parts_ms(self) -> dict[str, float]:
        """Milliseconds of the parts of a counted step, and of its communication under DDP.

        Without a backward pass that was seen, what precedes the optimizer is in `rest_ms` alone.
        """
        communication = self._communication_ms()
        parts = self.timer.phases.parts_ms(communication.get("exposed_comm_ms", 0.0))
        seen = parts if self.backward_passes else {name: parts[name] for name in parts if name in _WITHOUT_BACKWARD}
        return {**communication, **seen} if parts else {}

    def _communication_ms(self) -> dict[str, float]:
        """Milliseconds of an optimizer step, over all models that were under DDP; empty without."""
        steps = len(self.timer.step_ms)
        sums = {"comm_ms": 0.0, "overlap_ms": 0.0}
        for model in self._ddp:
            for name, ms in model.pass_ms().items():
                sums[name] += ms * model.passes
        return with_exposed({name: ms / steps for name, ms in sums.items()}) if steps else {}

    # --- hooks ------------------------------------------------------------------------------------------------------

    def _count_from_here(self) -> None:
        for model in self._ddp:
            model.count_from_here()

    def _loaded(self, batch: Any) -> None:
        self.timer.phases.after("data_wait")
        self._samples_loaded += samples_in(batch, first_tensor(batch))

    def _made(self, optimizer: Optimizer) -> None:
        self._has_optimizer = True

    def _scaled(self, loss: Any, scaled: Any) -> None:
        self._unscaled = (id(scaled), loss)

    def _end_forward(self) -> None:
        self.timer.phases.after("forward")

    def _interrupt(self) -> None:
        self._is_interrupted = True

    def _begin_backward(self, roots: Any, *_: Any, **__: Any) -> None:
        if not self._backward_depth:
            self.timer.phases.after("forward")
            root = roots if isinstance(roots, Tensor) else next(iter(roots), None)
            if isinstance(root, Tensor) and root.numel() == 1:
                scaled, loss = self._unscaled
                self._losses.append((loss if scaled == id(root) else root).detach())
        self._backward_depth += 1
        # Checkpointed activations are computed again, by models that are given nothing new.
        self.inputs.is_paused = True

    def _end_backward(self, _: Any) -> None:
        self._backward_depth -= 1
        if self._backward_depth:
            return
        self.inputs.is_paused = False
        self.timer.phases.after("backward")
        self.backward_passes += 1
        if not self._has_optimizer:
            self._end_step()

    def _step(self, optimizer: Optimizer) -> None:
        if self._leader is None or self._leader() is None:
            self._leader, self._has_optimizer = weakref.ref(optimizer), True
        self.timer.phases.after("optimizer")
        if self.agreement is not None:
            self.agreement.step(optimizer)
        if self._leader() is optimizer:
            self._steps_of_others = 0
            self._end_step(optimizer)
            return
        self._steps_of_others += 1
        if self._steps_of_others == _MOST_OF_OTHERS:
            self._leader = weakref.ref(optimizer)  # a second stage of the training has begun
            self._is_interrupted = True

    def _end_step(self, optimizer: Optimizer | None = None) -> None:
        self.count += 1
        seen = self._take_counts()
        is_left_out = self._seen.add(seen, is_interrupted=self._is_interrupted)
        self._is_interrupted = False
        # Two profiles at once are impossible, and the code may have begun one.
        if self.count == _TRACED_AFTER and self._rank.is_traced and not is_profiling():
            with self._untimed():
                self._tracing.enter_context(traced(self._rank))
        elif self.count == WARMUP_STEPS:
            with self._untimed():
                self._tracing.close()
        self._end_timed_step(is_left_out=is_left_out)
        if self.count <= 2 * _READ_EVERY or self.count % _READ_EVERY == 0:
            for model in self._ddp:
                model.read()
        if optimizer is not None and self.agreement is not None and self.agreement.is_due:
            with self.timer.paused(), self._untimed():
                self.agreement.sample(optimizer)
        is_unseen = self._has_seen_models and not seen.given
        self._has_seen_models |= seen.given > 0
        if self.count in _MODELS_FOUND_AFTER or (is_unseen and self.count % _READ_EVERY == 0):
            with self.timer.paused(), self._untimed():
                self.inputs.find()
        self._emit(_PROGRESS)
        self.leave_out()

    def _take_counts(self) -> Seen:
        """What the step under way had; its losses are kept."""
        seen = Seen(self._samples_loaded, *self.inputs.take(), *self._counted)
        self._unread.append(self._losses)
        if len(self._unread) >= _LOSSES_READ_AT:
            _ = self.losses
        self._samples_loaded, self._counted, self._losses = 0, [0.0, 0.0], []
        return seen

    def _end_timed_step(self, *, is_left_out: bool) -> None:
        now = time.perf_counter()
        if not self.timer.is_warm:
            self._early_s.append(now - self._step_began)
        self._step_began = now
        if is_left_out:
            self.timer.restart_step()
            return
        if not self.timer.is_warm and self._is_settled():
            self.timer.end_warm_up()
        self.timer.step()

    def _is_settled(self) -> bool:
        """Whether the last steps took as long as the fastest one, so that nothing is compiled or loaded any more."""
        return len(self._early_s) >= WARMUP_STEPS and max(self._early_s[-2:]) <= _SETTLED * min(self._early_s)
