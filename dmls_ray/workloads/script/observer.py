"""What is seen of a script from outside: the steps of its optimizer, and their samples, tokens and losses."""

from __future__ import annotations

import gc
import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dmls_ray.training.clocks import PhaseClock
from dmls_ray.training.compat import after_each, after_each_scaled_loss
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.user_function.rank_run import WARMUP_STEPS, FunctionSteps

_MOST_RAISED = 3
"""How often a script is told to end: one that goes on catches even what is no `Exception`."""
_MOST_WARMUP = 50
"""Steps after which a warm-up ends in any case, in a script that runs to its end."""
_SETTLED = 1.5
"""Time of a step over the fastest one up to which a warm-up is over."""
_MODELS_FOUND_AFTER = (1, 3)
"""Steps after which models are looked for; some make a second one after their first step."""


class LastStep(BaseException):
    """Raised in a script after its last step; `except Exception` does not catch it."""


class ScriptSteps(FunctionSteps):
    """Steps of the first optimizer of a script; those of others are part of them.

    A script that makes no optimizer, since it changes its parameters itself, makes a step with each backward pass.

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
        self.backward_passes = 0
        self._clock, self._last, self._on_last = clock, last, on_last
        self._raised = 0
        self.end_process: Callable[[], None] = lambda: None
        """Ends a script that goes on although it was told to end."""
        self._leader: weakref.ref[Optimizer] | None = None
        self._inputs = ModelInputs(self)
        self._samples_loaded = 0
        """Samples that loaders gave since the last step."""
        self._losses: list[Any] = []
        """Losses of the backward passes since the last step, on the device."""
        self._step_losses: list[list[Any]] = []
        self._unscaled: tuple[int, Any] = (0, None)
        """The scaled loss, by its id, and the loss."""
        self._seen: list[tuple[int, int, int]] = []
        """Of each step without a test: samples from loaders, samples and tokens of the models."""
        self._has_optimizer = False
        self._step_began = time.perf_counter()
        self._early_s: list[float] = []
        """Seconds of the steps of the warm-up, by the host's clock."""
        self.is_interrupted = False
        """Whether a model was tested since the last step, or trained nothing."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        with (
            super().counted(),
            after_each_scaled_loss(self._scaled),
            after_each(Optimizer, self._made),
        ):
            yield

    @property
    def is_in_backward_pass(self) -> bool:
        """Whether a backward pass is under way, which computes checkpointed activations again."""
        return self._backward_depth > 0

    @property
    def losses(self) -> list[float | None]:
        """The loss of each step, over its backward passes; None where a root of a backward pass is no number."""
        return [math.fsum(map(float, step)) / len(step) if step else None for step in self._step_losses]

    @property
    def counted_by(self) -> str:
        """How samples are known: from the loaders, the models, or both."""
        loaded, given, tokens = self._per_step()
        if loaded and given:
            return "loader and model agree" if loaded == given else f"loader (the model was given {given:g})"
        if loaded:
            return "loader"
        return "tokens of the model" if tokens else "model" if given else "unknown"

    def rates(self) -> dict[str, float | None]:
        """Samples and tokens of a step of this rank, and of a second of the counted steps."""
        loaded, given, tokens = self._per_step()
        # Without a loader, a model of tokens may be given them in either order of batch and length.
        is_unknown = not loaded and tokens > 0
        samples = 0.0 if is_unknown else loaded or given
        # A script that ends within its warm-up has steps, too: the later half of them.
        early_s = self._early_s[len(self._early_s) // 2 :] or [math.inf]
        seconds = fmean(self.timer.step_ms) / 1e3 if self.timer.step_ms else fmean(early_s)
        return {
            "samples_per_step": None if is_unknown else self._usual_samples() or None,
            "samples_per_s": samples / seconds or None,
            "tokens_per_s": tokens / seconds or None,
            "backward_passes": self.backward_passes / max(self.count, 1),
        }

    def _per_step(self) -> tuple[float, float, float]:
        counted = self._seen[-len(self.timer.step_ms) :]  # all of them where none is timed
        if not counted:
            return 0.0, 0.0, 0.0
        loaded, given, tokens = (fmean(column) for column in zip(*counted, strict=True))
        return loaded, given, tokens

    def _usual_samples(self) -> float:
        """Samples of most steps: the last one of a pass over the data may have fewer."""
        return median(loaded or given for loaded, given, _ in self._seen) if self._seen else 0.0

    def _loaded(self, batch: Any) -> None:
        super()._loaded(batch)
        tensor = _first_tensor(batch)
        if tensor is not None and tensor.ndim:
            self._samples_loaded += len(tensor)

    def _made(self, optimizer: Optimizer) -> None:
        self._has_optimizer = True

    def _scaled(self, loss: Any, scaled: Any) -> None:
        self._unscaled = (id(scaled), loss)

    def _begin_backward(self, roots: Any, *args: Any, **kwargs: Any) -> None:
        super()._begin_backward(roots, *args, **kwargs)
        root = roots if isinstance(roots, Tensor) else next(iter(roots), None)
        if self._backward_depth == 1 and isinstance(root, Tensor) and root.numel() == 1:
            scaled, loss = self._unscaled
            self._losses.append((loss if scaled == id(root) else root).detach())

    def _end_backward(self, returned: Any) -> None:
        super()._end_backward(returned)
        if self._backward_depth:
            return
        self.backward_passes += 1
        if not self._has_optimizer:
            self._end_step()

    def _step(self, optimizer: Optimizer) -> None:
        if self._leader is None or self._leader() is None:
            self._leader = weakref.ref(optimizer)
        if self._leader() is optimizer:
            self._end_step(optimizer)
        else:
            self.timer.phases.after("optimizer")

    def _end_step(self, optimizer: Optimizer | None = None) -> None:
        seen = (self._samples_loaded, *self._inputs.take())
        self._step_losses.append(self._losses)
        self._samples_loaded, self._losses = 0, []
        if not self.is_interrupted:
            self._seen.append(seen)
        if optimizer is None:
            self.count += 1
            self._end_timed_step()
        else:
            super()._step(optimizer)
        if self.first_step_s is None:
            self.first_step_s = self._clock.total_s
        if self.count in _MODELS_FOUND_AFTER:
            with self.timer.paused(), self._untimed():
                self._inputs.find()
        if self._last is not None and self.count >= self._last:
            if not self._raised:
                self._on_last()
            elif self._raised == _MOST_RAISED:
                self.end_process()
            self._raised += 1
            raise LastStep

    def _end_timed_step(self) -> None:
        now = time.perf_counter()
        if not self.timer.is_warm:
            self._early_s.append(now - self._step_began)
        self._step_began = now
        if self.is_interrupted:
            self.timer.restart_step()
            self.is_interrupted = False
            return
        if not self.timer.is_warm and self._is_settled():
            self.timer.end_warm_up()
        self.timer.step()

    def _is_settled(self) -> bool:
        """Whether the last steps took as long as the fastest one, so that nothing is compiled or loaded any more."""
        return len(self._early_s) >= WARMUP_STEPS and max(self._early_s[-2:]) <= _SETTLED * min(self._early_s)


class ModelInputs:
    """Samples and tokens that the models of a script are given in training.

    Args:
        steps: is told of the forward passes.
    """

    def __init__(self, steps: ScriptSteps) -> None:
        self._steps = steps
        self._models: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._samples: Counter[int] = Counter()
        self._tokens: Counter[int] = Counter()

    def find(self) -> None:
        """Look at the outermost models with parameters to train; not at compiled ones, which would compile the look."""
        modules = [item for item in gc.get_objects() if isinstance(item, nn.Module)]
        inner = {id(child) for module in modules for child in module.children()}
        for module in modules:
            if id(module) in inner or module in self._models or module._compiled_call_impl is not None:
                continue
            if any(parameter.requires_grad for parameter in module.parameters()):
                self._models.add(module)
                module.register_forward_pre_hook(self._given, with_kwargs=True)
                module.register_forward_hook(self._returned)

    def take(self) -> tuple[int, int]:
        """Samples and tokens since the last call, of the model that had most."""
        most = max(self._samples.values(), default=0), max(self._tokens.values(), default=0)
        self._samples.clear()
        self._tokens.clear()
        return most

    def _given(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling() or self._steps.is_in_backward_pass:
            return
        if not torch.is_grad_enabled():
            self._steps.is_interrupted = True
            return
        self._steps.leave_out()
        tensor = _first_tensor((args, kwargs))
        if tensor is None or not tensor.ndim:
            return
        self._samples[id(module)] += len(tensor)
        if tensor.ndim == 2 and not tensor.is_floating_point():
            self._tokens[id(module)] += tensor.numel()

    def _returned(self, *_: Any) -> None:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling() and not self._steps.is_in_backward_pass:
            self._steps.timer.phases.after("forward")


def _first_tensor(value: Any) -> Tensor | None:
    """The first tensor in lists, tuples and mappings."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "values") and callable(value.values):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return None
    return next((tensor for item in value if (tensor := _first_tensor(item)) is not None), None)
