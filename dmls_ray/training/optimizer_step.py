"""One optimizer step: the gradients of a window on their way into the parameters, and the learning rate after it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from dmls_ray.config.training import TrainingConfig
from dmls_ray.training.gradient_noise_scale import NoiseMeter
from dmls_ray.training.optimizers import make_optimizer
from dmls_ray.training.precision import make_scaler


class Update:
    """Takes the losses of a window's passes, and steps.

    In this order: gradients are unscaled, measured, penalised (L1), clipped, and applied; then the schedule moves on.
    The schedule counts optimizer steps, and those that the scaler skips as well.

    Args:
        config: optimizer, learning rate, schedule, clipping, L1, precision.
        parameters: the model's.
        steps: optimizer steps of the whole run, over which the schedule stretches.
        device: where the parameters are.
        noise: is told the norms of gradients, where it is wanted.
    """

    def __init__(
        self,
        config: TrainingConfig,
        parameters: Sequence[nn.Parameter],
        steps: int,
        device: torch.device,
        noise: NoiseMeter | None = None,
    ) -> None:
        self.parameters = [item for item in parameters if item.requires_grad]
        self._l1, self._clip_norm, self._noise = config.l1, config.clip_norm, noise
        self.optimizer = make_optimizer(config, self.parameters)
        self.schedule = make_schedule(config, self.optimizer, steps)
        self.scaler = make_scaler(config, device)
        self._applied = torch.zeros((), dtype=torch.int64, device=device)
        self._steps = 0
        self._seeds: dict[float, Tensor] = {}

    def loss_scale(self) -> Tensor | float:
        """What losses are multiplied by before their backward pass."""
        return 1.0 if self.scaler is None else self.scaler.scale(torch.ones((), device=self._applied.device))

    def backward(self, loss: Tensor, weight: float = 1.0) -> None:
        """Add the gradients of a pass's loss up, so much of them."""
        # The weight goes in as the gradient of the loss, which saves a multiplication there and back.
        seed = self._seeds.get(weight)
        if seed is None:
            seed = self._seeds[weight] = torch.tensor(weight, device=loss.device)
        if self.scaler is not None:
            seed = self.scaler.scale(seed)
        loss.backward(gradient=seed.to(loss.dtype))

    def step(self) -> None:
        """Apply the window's gradients; nothing here waits for the device."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self._noise is not None:
            self._noise.add_averaged(self.parameters)
        gradients = [item.grad for item in self.parameters if item.grad is not None]
        if self._l1:
            # The gradient of l1 x sum |p|; every rank adds the same to what is averaged already.
            signs = torch._foreach_sign([item.detach() for item in self.parameters if item.grad is not None])
            torch._foreach_add_(gradients, signs, alpha=self._l1)
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self._clip_norm, foreach=True)
        self._steps += 1
        if self.scaler is None:
            self.optimizer.step()
        else:
            self._applied += torch.stack([item.isfinite().all() for item in gradients]).all()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.schedule is not None:
            with _no_word_of_skipping() if self._steps == 1 and self.scaler is not None else nullcontext():
                self.schedule.step()

    @property
    def skipped_steps(self) -> int:
        """Steps that the scaler left out since a gradient was not finite; waits for the device."""
        return 0 if self.scaler is None else self._steps - int(self._applied)

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, as `torch.save` takes it. All ranks call it; under ZeRO rank 0 has it."""
        if isinstance(self.optimizer, ZeroRedundancyOptimizer):
            self.optimizer.consolidate_state_dict()
            if dist.get_rank() != 0:
                return {}
        return {
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "steps": self._steps,
            "applied": int(self._applied),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        self._steps = state["steps"]
        self._applied.fill_(state["applied"])


@contextmanager
def _no_word_of_skipping() -> Iterator[None]:
    """PyTorch warns where the first step was skipped: it looks as if the schedule stepped before the optimizer."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
        yield


def make_schedule(config: TrainingConfig, optimizer: Optimizer, steps: int) -> LRScheduler | None:
    """The learning rate by optimizer step; None where it stays.

    one-cycle is Smith & Topin, arXiv 1708.07120, with momentum left as it is configured; cosine is Loshchilov & Hutter,
    arXiv 1608.03983, without restarts.
    """
    if config.lr_schedule == "one-cycle":
        # Its first step is one of steps; one more is asked for after the last.
        return OneCycleLR(optimizer, max_lr=config.scaled_lr, total_steps=steps + 1, cycle_momentum=False)
    if config.lr_schedule == "constant" and not config.lr_warmup_steps:
        return None
    return LambdaLR(optimizer, lr_factor(config, steps))


def lr_factor(config: TrainingConfig, steps: int) -> Callable[[int], float]:
    """What the learning rate is multiplied by in each optimizer step, from 0."""
    warmup = min(config.lr_warmup_steps, steps)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if config.lr_schedule == "constant":
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))

    return factor
