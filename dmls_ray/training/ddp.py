"""The model under DDP and torch.compile with the configured options, and the times of its communication."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.provenance import has_cpp_compiler
from dmls_ray.training.compat import (
    compile_counters,
    ddp_logging_data,
    late_hooks,
    measured_passes,
    set_ddp_sample_rate,
)
from dmls_ray.training.gradient_noise_scale import NoiseMeter
from dmls_ray.training.precision import autocast
from dmls_ray.training.sharding import evaluation_shards, micro_batches, steps_per_epoch
from dmls_ray.training.task import TrainingTask
from dmls_ray.util.errors import UnavailableError

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
        self._ddp, self._timers = None, None
        if config.compile != "off":
            # The sizes of batches are known and few. With symbolic sizes, whether the last batch is shorter would
            # decide which kernels all of them use. Compiled is what DDP wraps: its own forward pass ends a graph, and
            # then the frames of PyTorch's containers, as of an nn.Sequential, are left out.
            model.compile(mode=compile_mode(config, next(model.parameters()).device), dynamic=False)
        if config.world_size > 1:
            self._ddp = _wrapped(model, config, noise)
            self._timers = DDPTimers(self._ddp)
        self.forward: Any = self._ddp or model

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
            yield self.bare

    def bucket_bytes(self) -> int:
        """Size of DDP's buckets, which store all gradients a second time; 0 at world size 1."""
        if self._ddp is None:
            return 0
        return sum(item.numel() * item.element_size() for item in self.bare.parameters() if item.requires_grad)

    def hooks_without_effect(self, passes: int) -> list[str]:
        """Hooks that have left all gradients of so many passes as they are."""
        return [] if self._timers is None else self._timers.hooks_without_effect(passes)

    def communication(self) -> dict[str, float]:
        """Milliseconds of a pass, as DDP's timers sampled them: `comm_ms`, `overlap_ms` and `exposed_comm_ms`
        (communication that no computation hides); empty at world size 1.

        See Li et al., VLDB 2020, arXiv 2006.15704. A pass that only accumulates is not in them.
        """
        return {} if self._timers is None else with_exposed(self._timers.pass_ms())


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


def _wrapped(model: nn.Module, config: TrainingConfig, noise: NoiseMeter | None) -> DistributedDataParallel:
    ddp = DistributedDataParallel(
        model,
        bucket_cap_mb=config.bucket_cap_mib,
        gradient_as_bucket_view=config.gradient_as_bucket_view,
        static_graph=config.static_graph,
    )
    if config.compression != "none" or noise is not None:
        hook: Any = _HOOKS[config.compression]
        state: Any = dist.group.WORLD
        if config.compression == "powersgd":
            state = PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=_POWERSGD_BEGINS)
        ddp.register_comm_hook(state, hook if noise is None else noise.hook(hook))
    return ddp


SAMPLED_EVERY = {"cpu": 2, "cuda": 100}
"""Interval in passes at which communication is timed. On a GPU DDP waits for the device then, so it is rare; on a CPU
it costs about 12 microseconds."""

_TIMES = {
    "comm_ms": "avg_backward_comm_time",
    "overlap_ms": "avg_backward_compute_comm_overlap_time",
}
"""Metrics of communication -> names of DDP's timers."""


class DDPTimers:
    """The communication times of a model under DDP, without those of its warm-up.

    The model is not kept: once it is gone, what was read last holds.

    Args:
        ddp: the model; DDP samples its times from now on at the rate of `SAMPLED_EVERY`.
    """

    def __init__(self, ddp: DistributedDataParallel) -> None:
        device = next(ddp.parameters(), torch.empty(0)).device.type
        self._ddp = weakref.ref(ddp)
        self._every = SAMPLED_EVERY[device]
        set_ddp_sample_rate(ddp, self._every)
        self._measured = 0, 0, dict.fromkeys(_TIMES, 0.0)
        """Passes so far, how many of them DDP has measured, and the milliseconds that these took together."""
        self._at_start = self._measured
        self._late_hooks: dict[str, int] = {}
        """Hooks that leave the first gradients as they are: name -> in how many passes."""

    def count_from_here(self) -> None:
        """Leave the passes so far out: they were the warm-up."""
        self.read()
        self._at_start = self._measured

    def read(self) -> None:
        """Read DDP's timers, which are gone with the model."""
        ddp = self._ddp()
        if ddp is None:
            return
        self._late_hooks = late_hooks(ddp)
        data = ddp_logging_data(ddp)
        count = measured_passes(data, self._every)
        sums = {name: data.get(timer, 0) / 1e6 * count for name, timer in _TIMES.items()}
        self._measured = int(data.get("iteration", 0)), count, sums

    def hooks_without_effect(self, passes: int) -> list[str]:
        """Hooks that have left all gradients of so many passes as they are."""
        late = self._late_hooks.items()
        return [f"{name} (begins after {begins} passes)" for name, begins in late if begins >= passes]

    @property
    def passes(self) -> int:
        """Passes that communicated, without the warm-up, when the timers were read last. DDP logs a pass when the next
        one begins."""
        return self._measured[0] - self._at_start[0]

    def pass_ms(self) -> dict[str, float]:
        """Mean milliseconds of a pass that communicates, as DDP sampled them: `comm_ms` and `overlap_ms`; empty if it
        sampled none.

        See Li et al., VLDB 2020, arXiv 2006.15704.
        """
        self.read()
        _, count, sums = self._measured
        _, count_before, sums_before = self._at_start
        if count <= count_before:
            return {}
        return {name: max(sums[name] - sums_before[name], 0.0) / (count - count_before) for name in _TIMES}


def with_exposed(ms: Mapping[str, float]) -> dict[str, float]:
    """The times and `exposed_comm_ms`, the communication that no computation hides; empty without communication."""
    if not ms.get("comm_ms"):
        return {}
    return {**ms, "exposed_comm_ms": max(ms["comm_ms"] - ms["overlap_ms"], 0.0)}


def warm_up(
    ddp_model: DDPModel, task: TrainingTask, config: TrainingConfig, rank: int, device: torch.device
) -> dict[str, Any]:
    """Compile for every batch size of the run: the first and the last pass, in training and in evaluation.

    The model, its buffers and its gradients are the same afterwards.

    Returns:
        `compile_s`, `compile_cache` and `compiled_graphs`, those of training; empty if nothing is compiled.

    Raises:
        UnavailableError: there is no C++ compiler, which Inductor needs on a CPU.
    """
    if config.compile == "off":
        return {}
    if device.type == "cpu" and not has_cpp_compiler():
        raise UnavailableError(f"compile={config.compile} needs a C++ compiler, and none is on this machine's path.")
    counters = compile_counters()
    counters.clear()
    began = time.perf_counter()
    buffers = {name: buffer.clone() for name, buffer in ddp_model.bare.named_buffers()}

    # CUDA graphs run a size once eagerly, record it in the second pass and replay it from the third on.
    passes = 3 if device.type == "cuda" and config.compile == "max-autotune" else 1
    graphs = 0
    for training in (True, False):
        ddp_model.bare.train(training)
        for samples in _batch_sizes(task, config, rank, training) * passes:
            with autocast(config, device), torch.inference_mode(not training):
                # Made inside inference mode, since tensors of inference mode need a separate graph.
                batch = task.example_batch(samples)
                outputs = task.predict(ddp_model.forward if training else ddp_model.bare, batch)
                loss = task.loss(outputs, batch)
            if training:
                loss.backward()
                # After each pass: the next one would add to gradients in the memory of a CUDA graph.
                ddp_model.bare.zero_grad(set_to_none=True)
                graphs = counters["stats"]["unique_graphs"]

    with torch.no_grad():
        for name, buffer in ddp_model.bare.named_buffers():
            buffer.copy_(buffers[name])
    cache = "cold"
    if counters["inductor"]["fxgraph_cache_hit"]:
        cache = "mixed" if counters["inductor"]["fxgraph_cache_miss"] else "warm"
    return {"compile_s": time.perf_counter() - began, "compile_cache": cache, "compiled_graphs": graphs}


def _batch_sizes(task: TrainingTask, config: TrainingConfig, rank: int, training: bool) -> list[int]:
    """Samples of the first and of the last pass.

    In training every rank has the same number of passes here, since DDP needs all ranks in each of them.
    """
    if training:
        batches = micro_batches(task.train_samples, config, rank)
        return [batch.stop - batch.start for batch in (batches[0], batches[-1])]
    splits = [evaluation_shards(samples, config, rank) for samples in (task.test_samples, task.validation_samples)]
    ends = [shard for shards in splits for shard in (*shards[:1], *shards[-1:])]
    return sorted({len(range(shard.start, shard.stop, shard.step)) for shard in ends})
