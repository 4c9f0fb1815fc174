"""The model under DDP with the configured options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.config.training import TrainingConfig
from dmls_ray.training.ddp_timers import DDPTimers, with_exposed
from dmls_ray.training.gradient_noise_scale import NoiseMeter
from dmls_ray.training.sharding import steps_per_epoch

_POWERSGD_BEGINS = 10
"""Steps whose gradients PowerSGD leaves as they are: compression from the start would harm the training."""

_HOOKS = {
    "none": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "powersgd": powerSGD_hook,
}


class DDPModel:
    """The model of a rank: wrapped in DDP at world size above 1, bare otherwise."""

    def __init__(self, model: nn.Module, config: TrainingConfig, noise: NoiseMeter | None) -> None:
        self.bare = model
        self._compression = None
        if config.compression == "powersgd":
            self._compression = PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=_POWERSGD_BEGINS)
        self._ddp, self._timers = None, None
        if config.world_size > 1:
            self._ddp = _wrapped(model, config, noise, self._compression)
            self._timers = DDPTimers(self._ddp)
        self._is_compiled = config.compile != "off"
        self.forward: Any = self._ddp or model
        self.test_forward: Any = model
        if self._is_compiled:
            # The sizes of batches are known and few. With symbolic sizes, whether the last batch is shorter would
            # decide which kernels all of them use.
            options: Any = {"mode": compile_mode(config, next(model.parameters()).device), "dynamic": False}
            self.forward = torch.compile(self.forward, **options)
            self.test_forward = torch.compile(model, **options) if self._ddp else self.forward

    def reducing(self, reduces: bool) -> AbstractContextManager[None]:
        """Context of a pass: without reduction it adds to the local gradients, which a later pass reduces."""
        return nullcontext() if reduces or self._ddp is None else self._ddp.no_sync()

    def count_from_here(self) -> None:
        """Leave the passes so far out of the communication times: they were the warm-up."""
        if self._timers is not None:
            self._timers.count_from_here()

    @contextmanager
    def alone(self) -> Iterator[Any]:
        """The forward pass without the other ranks: neither gradients nor buffers are communicated.

        It ends the training of the run, since DDP does not send the buffers in the next pass either.
        """
        with self.reducing(False):
            if self._ddp is not None:
                self._ddp.require_forward_param_sync = False
            yield self.forward if self._is_compiled else self.bare

    def bucket_bytes(self) -> int:
        """Size of DDP's buckets, which store all gradients a second time; 0 at world size 1."""
        if self._ddp is None:
            return 0
        return sum(item.numel() * item.element_size() for item in self.bare.parameters() if item.requires_grad)

    def compression_state(self) -> list[Tensor]:
        """Tensors that the compression of gradients keeps from step to step."""
        if self._compression is None:
            return []
        found: list[Tensor] = []
        for by_bucket in vars(self._compression).values():
            if isinstance(by_bucket, dict):
                found += [tensor for tensor in by_bucket.values() if isinstance(tensor, Tensor)]
        return found

    def communication(self, broadcast_ms: float) -> dict[str, float]:
        """Milliseconds of a pass, as DDP's timers sampled them: `comm_ms`, `overlap_ms` and `exposed_comm_ms`
        (communication that no computation hides); empty at world size 1.

        See Li et al., VLDB 2020, arXiv 2006.15704. A pass that only accumulates is not in them.

        Args:
            broadcast_ms: further communication in each step, after the backward pass.
        """
        ms = self._timers.pass_ms() if self._timers else {}
        if not ms:
            return {}
        return with_exposed({**ms, "comm_ms": ms["comm_ms"] + broadcast_ms})


def warmup_steps(samples: int, config: TrainingConfig) -> int:
    """Optimizer steps at the start of a run on so many samples that count in no rate.

    At most half of the steps, so that a short run still has steps to count.
    """
    wanted = config.warmup_steps
    if config.world_size > 1 and config.compression == "powersgd":
        # The first steps with PowerSGD communicate otherwise than the later ones.
        wanted = max(wanted, _POWERSGD_BEGINS)
    return min(wanted, config.epochs * steps_per_epoch(samples, config) // 2)


def compile_mode(config: TrainingConfig, device: torch.device) -> str | None:
    """The mode of torch.compile for a configuration that compiles; None is PyTorch's default."""
    if config.compile == "default":
        return None
    # A CUDA graph writes its gradients to the same memory in each pass, so they cannot be accumulated over passes.
    accumulates = device.type == "cuda" and config.accum_steps > 1
    return "max-autotune-no-cudagraphs" if accumulates else config.compile


def _wrapped(
    model: nn.Module, config: TrainingConfig, noise: NoiseMeter | None, compression: PowerSGDState | None
) -> DistributedDataParallel:
    ddp = DistributedDataParallel(
        model,
        bucket_cap_mb=config.bucket_cap_mib,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        static_graph=config.static_graph,
    )
    if config.compression != "none" or noise is not None:
        hook: Any = _HOOKS[config.compression]
        state: Any = compression or dist.group.WORLD
        ddp.register_comm_hook(state, hook if noise is None else noise.hook(hook))
    return ddp
