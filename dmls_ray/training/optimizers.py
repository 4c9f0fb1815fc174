"""Optimizers and learning-rate schedules by their names in the configuration, and one optimizer step.

In a step gradients are accumulated and applied, and the learning rate follows its schedule.
"""

from __future__ import annotations

import math
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from dmls_ray.config.training import TrainingConfig
from dmls_ray.training.compat import found_inf
from dmls_ray.training.gradient_noise_scale import NoiseMeter
from dmls_ray.training.precision import make_scaler

_OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "adamw": AdamW, "sgd": SGD, "rmsprop": RMSprop}


def make_optimizer(config: TrainingConfig, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """The optimizer of the configuration, at its scaled learning rate.

    PyTorch has fused kernels of adam, adamw and sgd for CUDA and for CPUs, and none of rmsprop.
    """
    options: dict[str, Any] = {"lr": config.scaled_lr, "weight_decay": config.weight_decay}
    options["foreach" if config.optimizer == "rmsprop" else "fused"] = True
    if config.optimizer in ("sgd", "rmsprop"):
        options["momentum"] = config.momentum
    kind = _OPTIMIZERS[config.optimizer]
    if config.zero_redundancy:
        return ZeroRedundancyOptimizer(parameters, optimizer_class=kind, **options)
    return kind(parameters, **options)


def make_schedule(config: TrainingConfig, optimizer: Optimizer, steps: int) -> LRScheduler | None:
    """The schedule of an optimizer for a run of `steps` optimizer steps; None if the learning rate is constant.

    one-cycle is Smith & Topin, arXiv 1708.07120, with constant momentum. It includes a warm-up.
    """
    if config.lr_schedule == "one-cycle":
        # One more than steps: the schedule is also stepped after the last optimizer step.
        return OneCycleLR(optimizer, max_lr=config.scaled_lr, total_steps=steps + 1, cycle_momentum=False)
    if config.lr_schedule == "constant" and not config.lr_warmup_steps:
        return None
    return LambdaLR(optimizer, lr_factor(config, steps))


def lr_factor(config: TrainingConfig, steps: int) -> Callable[[int], float]:
    """Factor of the learning rate in each optimizer step, from 0."""
    warmup = min(config.lr_warmup_steps, steps)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if config.lr_schedule == "cosine":
            # Loshchilov & Hutter, arXiv 1608.03983, without restarts.
            return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))
        return 1.0

    return factor


class OptimizerStep:
    """Accumulates the gradients of the micro-batches of a step, and applies them.

    The order of a step: gradients are unscaled, measured, penalised (L1), clipped and applied; then the schedule
    advances. The schedule also counts steps that the scaler skips.

    Args:
        config: optimizer, learning rate, schedule, clipping, L1, precision.
        parameters: the parameters of the model.
        steps: optimizer steps of the run, the length of the schedule.
        noise: measures the norms of gradients, if configured.
    """

    def __init__(
        self, config: TrainingConfig, parameters: Sequence[nn.Parameter], steps: int, noise: NoiseMeter | None = None
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._l1, self._clip_norm, self._noise = config.l1, config.clip_norm, noise
        self.optimizer = make_optimizer(config, self.parameters)
        self.schedule = make_schedule(config, self.optimizer, steps)
        device = self.parameters[0].device
        self.scaler = make_scaler(config, device)
        self._applied = torch.zeros((), dtype=torch.int64, device=device)
        self._steps = 0

    def loss_scale(self) -> Tensor | float:
        """Factor of the losses in the backward pass."""
        scaler = self.scaler
        return scaler.scale(torch.ones((), device=self._applied.device)) if scaler.is_enabled() else 1.0

    def backward(self, loss: Tensor, weight: float = 1.0) -> None:
        """Accumulate the gradients of a loss times a weight."""
        # The weight is the gradient of the loss, which saves a multiplication in each direction.
        gradient = torch.full((), weight, device=loss.device)
        loss.backward(gradient=self.scaler.scale(gradient).to(loss.dtype))

    def step(self) -> None:
        """Apply the accumulated gradients, without waiting for the device."""
        self.scaler.unscale_(self.optimizer)
        if self._noise is not None:
            self._noise.add_averaged(self.parameters)
        self._penalise_and_clip()
        self._steps += 1
        if self.scaler.is_enabled():
            self._applied += (found_inf(self.scaler, self.optimizer) == 0).squeeze()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.schedule is not None:
            # If the scaler skips the first step, PyTorch warns that the schedule steps before the optimizer.
            may_warn = self._steps == 1 and self.scaler.is_enabled()
            with warnings.catch_warnings(action="ignore") if may_warn else nullcontext():
                self.schedule.step()

    def step_alone(self) -> None:
        """What a step allocates, on this rank only and without counters and schedule.

        From here on the learning rate is 0, so that the parameters stay as they are.
        """
        optimizer = self._local_optimizer
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        # With ZeRO, a rank may have no share, and the scaler refuses to step without gradients.
        has_share = any(item.grad is not None for group in optimizer.param_groups for item in group["params"])
        if has_share:
            self.scaler.unscale_(optimizer)
        self._penalise_and_clip()
        if has_share:
            self.scaler.step(optimizer)
            self.scaler.update()
        optimizer.zero_grad(set_to_none=True)

    def state_tensors(self) -> list[Tensor]:
        """The state of the optimizer on this rank; with ZeRO, this rank's share."""
        states = self._local_optimizer.state.values()
        return [value for state in states for value in state.values() if isinstance(value, Tensor)]

    @property
    def _local_optimizer(self) -> Optimizer:
        optimizer = self.optimizer
        local: Optimizer = optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer
        return local

    def _penalise_and_clip(self) -> None:
        if self._l1:
            # The gradient of l1 x sum |p|. Every rank adds it after averaging, so it is counted once.
            gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
            trained = [parameter.detach() for parameter in self.parameters if parameter.grad is not None]
            torch._foreach_add_(gradients, torch._foreach_sign(trained), alpha=self._l1)
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self._clip_norm, foreach=True)

    @property
    def skipped_steps(self) -> int:
        """Steps that the scaler skipped because a gradient was not finite; waits for the device."""
        return self._steps - int(self._applied) if self.scaler.is_enabled() else 0

    def state(self) -> dict[str, Any]:
        """What the next step of this rank depends on, for `torch.save`; with ZeRO, this rank's share of the state."""
        # The schedule sets the options of ZeRO, which gives them to its local optimizer in its next step.
        options = [dict(group) for group in self.optimizer.param_groups]
        for group in options:
            del group["params"]
        return {
            "optimizer": self._local_optimizer.state_dict(),
            "options": options,
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "steps": self._steps,
            "applied": int(self._applied),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._local_optimizer.load_state_dict(state["optimizer"])
        for group, options in zip(self.optimizer.param_groups, state["options"], strict=True):
            group.update(options)
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.scaler.load_state_dict(state["scaler"])
        self._steps = state["steps"]
        self._applied.fill_(state["applied"])


@contextmanager
def around_optimizer_steps(before: Callable[[], object], after: Callable[[Optimizer], object]) -> Iterator[None]:
    """Call two functions before and after each step of an optimizer, while the context lasts.

    An optimizer may step another one, as ZeRO does: that is one step. Of several optimizers each step counts.
    """
    outermost: weakref.ref[Optimizer] | None = None

    def begin(optimizer: Optimizer, *_: Any) -> None:
        nonlocal outermost
        if outermost is not None and _is_in_step(outermost()):
            return
        before()
        outermost = weakref.ref(optimizer)

    def end(optimizer: Optimizer, *_: Any) -> None:
        nonlocal outermost
        if outermost is not None and optimizer is outermost():
            outermost = None
            after(optimizer)

    handles = register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _is_in_step(optimizer: Optimizer | None) -> bool:
    """Whether a step of an optimizer is under way: one that raised has told nobody."""
    frame = sys._getframe(1) if optimizer is not None else None
    while frame is not None:
        if frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False
