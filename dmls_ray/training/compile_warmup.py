"""torch.compile's work done in set-up, so that no rate has any of it."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.nn.functional as F

from dmls_ray.records.provenance import has_cpp_compiler
from dmls_ray.training.data.loaders import Loader, laid_out
from dmls_ray.training.data.sharding import passes_of, test_shards
from dmls_ray.training.ddp import DDPModel
from dmls_ray.training.precision import autocast
from dmls_ray.util.errors import UnavailableError
from dmls_ray.workloads.classification.config import TrialConfig


def warm_up(replica: DDPModel, loader: Loader, config: TrialConfig, rank: int, device: torch.device) -> dict[str, Any]:
    """Compile for every shape that the run will meet: the first and the last pass, in training and in tests.

    The model, its buffers and its gradients are afterwards as they were.

    Returns:
        `compile_s` and `compile_cache`; empty where nothing is compiled.

    Raises:
        UnavailableError: there is no C++ compiler here, which Inductor needs on a CPU.
    """
    if config.compile == "off":
        return {}
    if device.type == "cpu" and not has_cpp_compiler():
        raise UnavailableError(f"compile={config.compile} needs a C++ compiler, and none is on this machine's path.")
    from torch._dynamo.utils import counters

    counters.clear()
    began = time.perf_counter()
    kept = {name: buffer.clone() for name, buffer in replica.bare.named_buffers()}
    for training in (True, False):
        replica.bare.train(training)
        for count in _sizes(loader, config, rank, training):
            with autocast(config, device), torch.inference_mode(not training):
                # Made in here: a graph for tensors of inference mode is another one.
                images = laid_out(torch.zeros(count, *loader.shape, device=device), config)
                labels = torch.zeros(count, dtype=torch.int64, device=device)
                logits = (replica.forward if training else replica.test_forward)(images)
                loss = F.cross_entropy(logits, labels, reduction="sum")
            if training:
                loss.backward()
    replica.bare.zero_grad(set_to_none=True)
    with torch.no_grad():
        for name, buffer in replica.bare.named_buffers():
            buffer.copy_(kept[name])
    hits, misses = (counters["inductor"][f"fxgraph_cache_{kind}"] for kind in ("hit", "miss"))
    return {
        "compile_s": time.perf_counter() - began,
        "compile_cache": "mixed" if hits and misses else "warm" if hits else "cold",
    }


def _sizes(loader: Loader, config: TrialConfig, rank: int, training: bool) -> list[int]:
    """Samples of the first and of the last pass; as many on every rank, since DDP's passes are common."""
    if training:
        passes = passes_of(loader.train_samples, config, rank)
        return [item.stop - item.start for item in (passes[0], passes[-1])]
    sizes: set[int] = set()
    for samples in (loader.test_samples, loader.validation_samples):
        shards = [part.stop - part.start for part in test_shards(samples, config, rank)]
        sizes |= {shards[0], shards[-1]} if shards else set()
    return sorted(sizes)
