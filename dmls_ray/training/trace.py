"""A trace of a few steps on every rank, by torch.profiler, after the training and outside of all times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from dmls_ray.training.clocks import synchronize
from dmls_ray.training.precision import autocast
from dmls_ray.training.rank import RankInfo

if TYPE_CHECKING:
    from dmls_ray.training.engine import RankTrainer

TRACED_STEPS = 8
"""Optimizer steps of a trace. What a step does differs little from the next, and a file of many is slow to open."""


def trace_name(rank: int) -> str:
    """The file of a rank in the folder of its run, which chrome://tracing and Perfetto open."""
    return f"trace-rank{rank}.json.gz"


def write_trace(trainer: RankTrainer[Any]) -> None:
    """Take further steps, and write what the rank did in them into the folder of the run, if that is asked for.

    All ranks call it together, after their training. The parameters change, so nothing is measured on the model
    afterwards but its memory.
    """
    if is_traced(trainer.rank):
        with traced(trainer.rank):
            _take_steps(trainer)


def is_traced(rank: RankInfo) -> bool:
    """Whether a trace of the run is asked for."""
    return rank.artifacts is not None and rank.artifacts.trace


@contextmanager
def traced(rank: RankInfo) -> Iterator[None]:
    """Write what the rank does in this context into the folder of its run."""
    assert rank.artifacts is not None
    device = torch.device(rank.device)
    folder = Path(rank.artifacts.folder)
    folder.mkdir(parents=True, exist_ok=True)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as profiler:
        yield
        synchronize(device)
    profiler.export_chrome_trace(str(folder / trace_name(rank.rank)))


def _take_steps(trainer: RankTrainer[Any]) -> None:
    """The loop of the engine for a few steps, with a span for each part of a step."""
    task, taken = trainer.task, 0
    trainer.model.train()
    for micro_batch, batch in _in_spans(task.train_batches(len(trainer.epochs)), "dmls_ray: wait for data"):
        with trainer.ddp_model.reducing(micro_batch.ends_step):
            with record_function("dmls_ray: forward"), autocast(trainer.config, trainer.device):
                loss = task.loss(task.predict(trainer.ddp_model.forward, batch), batch)
            with record_function("dmls_ray: backward"):
                trainer.optimizer_step.backward(loss, micro_batch.scale)
        if micro_batch.ends_step:
            with record_function("dmls_ray: optimizer"):
                trainer.optimizer_step.step()
            taken += 1
            if taken == TRACED_STEPS:
                break


def _in_spans(items: Iterator[Any], name: str) -> Iterator[Any]:
    """Yield the items; waiting for each of them is a span."""
    while True:
        with record_function(name):
            item = next(items, None)
        if item is None:
            return
        yield item
