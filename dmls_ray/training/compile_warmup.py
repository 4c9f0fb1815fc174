"""torch.compile's work, done during set-up so that no rate contains it."""

from __future__ import annotations

import time
from typing import Any

import torch

from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.provenance import has_cpp_compiler
from dmls_ray.training.compat import compile_counters
from dmls_ray.training.ddp import DDPModel
from dmls_ray.training.precision import autocast
from dmls_ray.training.sharding import evaluation_shards, micro_batches
from dmls_ray.training.task import TrainingTask
from dmls_ray.util.errors import UnavailableError


def warm_up(
    ddp_model: DDPModel, task: TrainingTask, config: TrainingConfig, rank: int, device: torch.device
) -> dict[str, Any]:
    """Compile for every batch size of the run: the first and the last pass, in training and in evaluation.

    The model, its buffers and its gradients are the same afterwards.

    Returns:
        `compile_s` and `compile_cache`; empty if nothing is compiled.

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
    for training in (True, False):
        ddp_model.bare.train(training)
        for samples in _batch_sizes(task, config, rank, training) * passes:
            with autocast(config, device), torch.inference_mode(not training):
                # Made inside inference mode, since tensors of inference mode need a separate graph.
                batch = task.example_batch(samples)
                outputs = task.predict(ddp_model.forward if training else ddp_model.test_forward, batch)
                loss = task.loss(outputs, batch)
            if training:
                loss.backward()
                # After each pass: the next one would add to gradients in the memory of a CUDA graph.
                ddp_model.bare.zero_grad(set_to_none=True)

    with torch.no_grad():
        for name, buffer in ddp_model.bare.named_buffers():
            buffer.copy_(buffers[name])
    cache = "cold"
    if counters["inductor"]["fxgraph_cache_hit"]:
        cache = "mixed" if counters["inductor"]["fxgraph_cache_miss"] else "warm"
    return {"compile_s": time.perf_counter() - began, "compile_cache": cache}


def _batch_sizes(task: TrainingTask, config: TrainingConfig, rank: int, training: bool) -> list[int]:
    """Samples of the first and of the last pass.

    In training every rank has the same number of passes here, since DDP needs all ranks in each of them.
    """
    if training:
        batches = micro_batches(task.train_samples, config, rank)
        return [batch.stop - batch.start for batch in (batches[0], batches[-1])]
    splits = [evaluation_shards(samples, config, rank) for samples in (task.test_samples, task.validation_samples)]
    return sorted({shard.stop - shard.start for shards in splits for shard in (*shards[:1], *shards[-1:])})
