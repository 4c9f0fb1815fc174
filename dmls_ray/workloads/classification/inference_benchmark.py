"""Latency and checkpoint size of a trained model."""

from __future__ import annotations

import io
import time

import numpy as np
import torch
from torch import Tensor, nn

from dmls_ray.training.clocks import synchronize
from dmls_ray.training.task import Forward
from dmls_ray.workloads.classification.quantization import compiled_for

_TIMED_PASSES = 200
_WARMUP_PASSES = 20


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights to save: of a converted model, without the fp32 weights that its graph no longer uses."""
    state = model.state_dict()
    if not isinstance(model, torch.fx.GraphModule):
        return state
    used = {node.target for node in model.graph.nodes if node.op == "get_attr"}
    return {name: value for name, value in state.items() if name in used}


def checkpoint_bytes(model: nn.Module) -> int:
    """Size of the model's weights as a file of `torch.save`."""
    file = io.BytesIO()
    torch.save(weights_of(model), file)
    return file.tell()


def latency_ms(forward: Forward, images: Tensor) -> tuple[float, float]:
    """Median and 95th percentile of a forward pass, in milliseconds, after a warm-up."""
    times = []
    with torch.inference_mode():
        for number in range(_WARMUP_PASSES + _TIMED_PASSES):
            began = time.perf_counter()
            forward(images)
            synchronize(images.device)
            if number >= _WARMUP_PASSES:
                times.append((time.perf_counter() - began) * 1e3)
    p50, p95 = np.percentile(times, [50, 95])
    return float(p50), float(p95)


def measure_inference(fp32: nn.Module, int8: nn.Module | None, images: Tensor) -> dict[str, float]:
    """Latency and checkpoint size of the fp32 model, eager and compiled, and of the int8 model if there is one.

    Args:
        fp32: the trained model.
        int8: its converted form.
        images: the batch to time.
    """
    fp32 = fp32.eval()
    forwards: dict[str, Forward] = {"fp32_eager": fp32, "fp32_compiled": compiled_for(fp32, len(images))}
    metrics: dict[str, float] = {"fp32_checkpoint_bytes": checkpoint_bytes(fp32)}
    if int8 is not None:
        forwards["int8_compiled"] = compiled_for(int8, len(images))
        metrics["int8_checkpoint_bytes"] = checkpoint_bytes(int8)
    for name, forward in forwards.items():
        metrics[f"{name}_ms_p50"], metrics[f"{name}_ms_p95"] = latency_ms(forward, images)
    return metrics
