"""One optimizer step: gradients are accumulated and applied, and the learning rate follows its schedule."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer

from dmls_ray.config.training import TrainingConfig
from dmls_ray.training.clocks import Stopwatch
from dmls_ray.training.compat import around_zero_broadcasts, found_inf
from dmls_ray.training.ddp_timers import SAMPLED_EVERY
from dmls_ray.training.gradient_noise_scale import NoiseMeter
from dmls_ray.training.optimizers import make_optimizer, make_schedule
from dmls_ray.training.precision import make_scaler


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
        self.broadcasts = Stopwatch(device, SAMPLED_EVERY[device.type])
        """Times what ZeRO broadcasts in a step."""
        if isinstance(self.optimizer, ZeroRedundancyOptimizer):
            around_zero_broadcasts(self.optimizer, self.broadcasts.timed)
        self._applied = torch.zeros((), dtype=torch.int64, device=device)
        self._steps = 0
        self._weights: dict[float, Tensor] = {}

    def loss_scale(self) -> Tensor | float:
        """Factor of the losses in the backward pass."""
        scaler = self.scaler
        return scaler.scale(torch.ones((), device=self._applied.device)) if scaler.is_enabled() else 1.0

    def backward(self, loss: Tensor, weight: float = 1.0) -> None:
        """Accumulate the gradients of a loss times a weight."""
        # The weight is the gradient of the loss, which saves a multiplication in each direction.
        gradient = self._weights.get(weight)
        if gradient is None:
            gradient = self._weights[weight] = torch.tensor(weight, device=loss.device)
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
        """State of the next step, for `torch.save`. All ranks call it; with ZeRO only rank 0 gets the state."""
        if isinstance(self.optimizer, ZeroRedundancyOptimizer):
            with _refusing_code():
                self.optimizer.consolidate_state_dict()
            if dist.get_rank() != 0:
                return {}
        return {
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "steps": self._steps,
            "applied": int(self._applied),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.scaler.load_state_dict(state["scaler"])
        self._steps = state["steps"]
        self._applied.fill_(state["applied"])


@contextmanager
def _refusing_code() -> Iterator[None]:
    """Let every `torch.load` in the block refuse what is more than data, as ZeRO does not for what it receives."""
    forced, unforced = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = {name: os.environ.pop(name, None) for name in (forced, unforced)}
    os.environ[forced] = "1"
    try:
        yield
    finally:
        del os.environ[forced]
        os.environ.update({name: value for name, value in before.items() if value is not None})
