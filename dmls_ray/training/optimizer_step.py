"""One optimizer step: gradients are accumulated and applied, and the learning rate follows its schedule."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from dmls_ray.config.training import TrainingConfig
from dmls_ray.training.gradient_noise_scale import NoiseMeter
from dmls_ray.training.lr_schedule import make_schedule
from dmls_ray.training.optimizers import make_optimizer
from dmls_ray.training.precision import make_scaler


class OptimizerStep:
    """Accumulates the gradients of the micro-batches of a step, and applies them.

    The order of a step: gradients are unscaled, measured, penalised (L1), clipped and applied; then the schedule
    advances. The schedule also counts steps that the scaler skips.

    Args:
        config: optimizer, learning rate, schedule, clipping, L1, precision.
        parameters: the parameters of the model.
        steps: optimizer steps of the run, the length of the schedule.
        device: where the parameters are.
        noise: measures the norms of gradients, if configured.
    """

    def __init__(
        self,
        config: TrainingConfig,
        parameters: Sequence[nn.Parameter],
        steps: int,
        device: torch.device,
        noise: NoiseMeter | None = None,
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._l1, self._clip_norm, self._noise = config.l1, config.clip_norm, noise
        self.optimizer = make_optimizer(config, self.parameters)
        self.schedule = make_schedule(config, self.optimizer, steps)
        self.scaler = make_scaler(config, device)
        self._applied = torch.zeros((), dtype=torch.int64, device=device)
        self._steps = 0
        self._weights: dict[float, Tensor] = {}

    def loss_scale(self) -> Tensor | float:
        """Factor of the losses in the backward pass."""
        return 1.0 if self.scaler is None else self.scaler.scale(torch.ones((), device=self._applied.device))

    def backward(self, loss: Tensor, weight: float = 1.0) -> None:
        """Accumulate the gradients of a loss times a weight."""
        # The weight is the gradient of the loss, which saves a multiplication in each direction.
        gradient = self._weights.get(weight)
        if gradient is None:
            gradient = self._weights[weight] = torch.tensor(weight, device=loss.device)
        if self.scaler is not None:
            gradient = self.scaler.scale(gradient)
        loss.backward(gradient=gradient.to(loss.dtype))

    def step(self) -> None:
        """Apply the accumulated gradients, without waiting for the device."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self._noise is not None:
            self._noise.add_averaged(self.parameters)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if self._l1:
            # The gradient of l1 x sum |p|. Every rank adds it after averaging, so it is counted once.
            signs = torch._foreach_sign(
                [parameter.detach() for parameter in self.parameters if parameter.grad is not None]
            )
            torch._foreach_add_(gradients, signs, alpha=self._l1)
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self._clip_norm, foreach=True)
        self._steps += 1
        if self.scaler is None:
            self.optimizer.step()
        else:
            self._applied += torch.stack([parameter.isfinite().all() for parameter in gradients]).all()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.schedule is not None:
            with _no_skip_warning() if self._steps == 1 and self.scaler is not None else nullcontext():
                self.schedule.step()

    @property
    def skipped_steps(self) -> int:
        """Steps that the scaler skipped because a gradient was not finite; waits for the device."""
        return 0 if self.scaler is None else self._steps - int(self._applied)

    def state(self) -> dict[str, Any]:
        """State of the next step, for `torch.save`. All ranks call it; with ZeRO only rank 0 gets the state."""
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
        """Continue from `state`."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        self._steps = state["steps"]
        self._applied.fill_(state["applied"])


@contextmanager
def _no_skip_warning() -> Iterator[None]:
    """Hide PyTorch's warning that the schedule stepped before the optimizer, which a skipped first step causes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
        yield
