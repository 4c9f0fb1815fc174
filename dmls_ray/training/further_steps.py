"""Further steps of a rank, after the training and outside of all times: those of a trace, one for the memory, and one
for the operations.

The step for the memory measures the peak of the tensors in a training step, by kind. PyTorch's profiler records every
allocation, so compiled code, autocast and threads of the backward pass are included, and the same configuration has the
same bytes in every run. What existed before the step is counted from the tensors themselves. The step has the size of a
training step and trains on an example batch.

Each rank makes that step alone, so that a rank where it fails leaves no other rank waiting. DDP's buckets are added.
The tensors of a compression hook are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.compat import Recording, is_profiling, recorded_allocations
from dmls_ray.training.ddp import compile_mode
from dmls_ray.training.engine import RankTrainer
from dmls_ray.training.flop_counter import FlopCounter
from dmls_ray.training.marks import synchronize
from dmls_ray.training.memory import MIB
from dmls_ray.training.model_utilization import add_utilization
from dmls_ray.training.precision import autocast
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.sharding import micro_batches

TRACED_STEPS = 8
"""Optimizer steps of a trace. What a step does differs little from the next, and a file of many is slow to open."""

KINDS = ("parameter", "gradient", "optimizer", "activation", "other")
"""Kinds of memory, as in the names of the metrics."""

_PASSES = 2
"""Most passes of the step: with accumulation, the second finds the gradients of the first, as do those after it."""

FORWARD, UPDATE = "dmls_ray: forward", "dmls_ray: optimizer"
"""Names of spans of a trace, and of the recording of the memory."""


def trace_name(rank: int) -> str:
    """The file of a rank in the folder of its run, which chrome://tracing and Perfetto open."""
    return f"trace-rank{rank}.json.gz"


@contextmanager
def traced(rank: RankInfo) -> Iterator[None]:
    """Write what the rank does in this context into the folder of its run."""
    assert rank.artifacts is not None
    device = torch.device(rank.device)
    folder = Path(rank.artifacts.folder)
    folder.mkdir(parents=True, exist_ok=True)
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        yield
        synchronize(device)
    profiler.export_chrome_trace(str(folder / trace_name(rank.rank)))


def write_trace(trainer: RankTrainer[Any]) -> None:
    """Take further steps, with a span for each part of a step, and write a trace of them.

    All ranks call it together, after their training. The parameters change, so nothing is measured on the model
    afterwards but its memory.
    """
    task, taken = trainer.task, 0
    trainer.model.train()
    with traced(trainer.rank):
        for micro_batch, batch in task.train_batches(len(trainer.epochs)):
            with trainer.ddp_model.reducing(micro_batch.ends_step):
                with record_function(FORWARD), autocast(trainer.config, trainer.device):
                    loss = task.loss(task.predict(trainer.ddp_model.forward, batch), batch)
                with record_function("dmls_ray: backward"):
                    trainer.optimizer_step.backward(loss, micro_batch.scale)
            if micro_batch.ends_step:
                with record_function(UPDATE):
                    trainer.optimizer_step.step()
                taken += 1
                if taken == TRACED_STEPS:
                    break


def measure_tensors(trainer: RankTrainer[Any], result: RankResult) -> None:
    """Make one more training step and measure its tensors; parameters and buffers of the model are the same afterwards.

    It never fails: the result gets `tensor_mem_mib` and the memory by kind in MiB, or why these cannot be measured.
    """
    result.no_tensor_mem = _no_tensor_mem(trainer)
    if result.no_tensor_mem:
        return
    try:
        with _unchanged(trainer):
            sizes = _measured(trainer)
    except Exception as error:  # noqa: BLE001  # the run is over and its numbers are known, so this must not end it
        result.no_tensor_mem = _failed(error)
        return
    result.metrics["tensor_mem_mib"] = sum(sizes.values()) / MIB
    result.metrics |= {f"{kind}_mem_mib": sizes[kind] / MIB for kind in KINDS}


def count_operations(trainer: RankTrainer[Any], result: RankResult) -> None:
    """Make the passes of one more step, without compiling, and count their operations; it never fails.

    The result gets the utilization, or why it is not known.
    """
    if not trainer.timer.step_ms:
        return
    if _is_synchronized(trainer.model):
        result.run.facts["no_mfu"] = _SYNCHRONIZED
        return
    config, device, task = trainer.config, trainer.device, trainer.task
    batches = micro_batches(task.train_samples, config, trainer.rank.rank)
    sizes = [batch.stop - batch.start for batch in batches]
    ends = [number for number, batch in enumerate(batches, 1) if batch.ends_step]
    trainer.model.train()
    try:
        with _unchanged(trainer), trainer.ddp_model.alone() as forward, torch.compiler.set_stance("force_eager"):
            with FlopCounter() as counted:
                for size in sizes[: ends[0]]:
                    batch = task.example_batch(size)
                    with autocast(config, device):
                        loss = task.loss(task.predict(forward, batch), batch)
                    trainer.optimizer_step.backward(loss)
    except Exception as error:  # noqa: BLE001  # as above
        result.run.facts["no_mfu"] = _failed(error)
        return
    # The last step of an epoch may have fewer samples than the one that was counted.
    mean_size = sum(sizes) / len(ends)
    step_ms = fmean(trainer.timer.step_ms) * sum(sizes[: ends[0]]) / mean_size
    add_utilization(result, counted, step_ms, device)


@contextmanager
def _unchanged(trainer: RankTrainer[Any]) -> Iterator[None]:
    """Leave buffers and random numbers as they are, and no gradients."""
    model, device = trainer.model, trainer.device
    # Without a copy of the parameters, for which a machine that the training has filled would have no memory.
    saved = [buffer.clone() for buffer in model.buffers()]
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
        with torch.no_grad():
            for buffer, values in zip(model.buffers(), saved, strict=True):
                buffer.copy_(values)
    finally:
        model.zero_grad(set_to_none=True)


def _failed(error: Exception) -> str:
    return f"the step that measures it failed ({type(error).__name__}: {error})".splitlines()[0]


_SYNCHRONIZED = "SyncBatchNorm communicates in the forward pass, so no rank can step alone"


def _is_synchronized(model: nn.Module) -> bool:
    return any(isinstance(module, nn.SyncBatchNorm) for module in model.modules())


def _no_tensor_mem(trainer: RankTrainer[Any]) -> str:
    """Why the memory of tensors cannot be measured; empty if it can."""
    config, device = trainer.config, trainer.device
    if device.type == "cuda" and config.compile != "off" and compile_mode(config, device) == "max-autotune":
        return "compile=max-autotune replays CUDA graphs, whose allocations are not recorded"
    if _is_synchronized(trainer.model):
        return _SYNCHRONIZED
    return "another profile was under way" if is_profiling() else ""


def _measured(trainer: RankTrainer[Any]) -> dict[str, int]:
    """Bytes of each kind at the peak of a step."""
    config, model, device = trainer.config, trainer.model, trainer.device
    task, ddp_model, optimizer_step = trainer.task, trainer.ddp_model, trainer.optimizer_step
    batches = micro_batches(task.train_samples, config, trainer.rank.rank)
    passes = batches[: next(number for number, batch in enumerate(batches, 1) if batch.ends_step)][:_PASSES]
    buckets = ddp_model.bucket_bytes()
    if buckets and config.gradient_as_bucket_view and len(passes) == 1:
        # The gradients are views of the buckets, and the backward pass adds to them.
        for parameter in optimizer_step.parameters:
            parameter.grad = torch.zeros_like(parameter)
        buckets = 0

    # Kept until the end: PyTorch warns of memory that is freed in a recording and was allocated before it.
    views = _gradients(model)
    before = _bytes_by_kind(
        device,
        parameter=model.parameters(),
        gradient=views,
        optimizer=optimizer_step.state_tensors(),
        other=model.buffers(),
    )
    before["gradient"] += buckets
    model.train()
    with recorded_allocations(device) as recording, ddp_model.alone() as forward:
        for micro_batch in passes:
            batch = task.example_batch(micro_batch.stop - micro_batch.start)
            with record_function(FORWARD), autocast(config, device):
                outputs = task.predict(forward, batch)
                loss = task.loss(outputs, batch)
            optimizer_step.backward(loss, micro_batch.scale)
        gradients = {_address(gradient) for gradient in _gradients(model)}
        with record_function(UPDATE):
            optimizer_step.step_alone()
    state = {_address(tensor) for tensor in optimizer_step.state_tensors()}
    return peak_by_kind(recording, before, gradients, state)


def peak_by_kind(
    recording: Recording, before: Mapping[str, int], gradients: Set[int], optimizer_state: Set[int]
) -> dict[str, int]:
    """Bytes of each kind at the moment at which all of them together are most.

    An allocation of a forward pass that is still there when the pass ends belongs to the activations.

    Args:
        recording: the step, with spans `FORWARD` and one span `UPDATE`.
        before: bytes of each kind that existed before it.
        gradients: addresses of the gradients when the last backward pass ends.
        optimizer_state: addresses of the optimizer's state after the step.
    """
    forward = [(start, end) for name, start, end in recording.spans if name == FORWARD]
    (update,) = (start for name, start, _ in recording.spans if name == UPDATE)

    def kind_of(address: int, began: float, ended: float) -> str:
        if address in gradients and began < update <= ended:
            return "gradient"
        if address in optimizer_state and ended == math.inf:
            return "optimizer"
        kept = any(start <= began <= end < ended for start, end in forward)
        return "activation" if kept else "other"

    changes = []
    for address, size, began, ended in _blocks(recording.allocations):
        kind = kind_of(address, began, ended)
        changes.append((began, size, kind))
        if ended < math.inf:
            changes.append((ended, -size, kind))
    sizes, highest = dict(before), dict(before)
    for _, size, kind in sorted(changes, key=itemgetter(0)):
        sizes[kind] += size
        if sum(sizes.values()) > sum(highest.values()):
            highest = dict(sizes)
    return highest


def _blocks(allocations: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, float, float]]:
    """Address, size, begin and end of the blocks that a recording allocates; without an end, it is infinite.

    What the recording frees besides them existed before.
    """
    live: dict[int, tuple[int, int]] = {}
    for time, address, size in allocations:
        # A block that another thread freed, which was not recorded, ends where its address is used again.
        if address in live:
            began, allocated = live.pop(address)
            yield address, allocated, began, time
        if size > 0:
            live[address] = time, size
    for address, (began, allocated) in live.items():
        yield address, allocated, began, math.inf


def _bytes_by_kind(device: torch.device, **tensors: Iterable[Tensor]) -> dict[str, int]:
    """Bytes of tensors on a device; a storage that several of them share counts once, for the first kind."""
    sizes, counted = dict.fromkeys(KINDS, 0), set()
    for kind, items in tensors.items():
        for tensor in items:
            if tensor.device.type == device.type and (address := _address(tensor)) not in counted:
                counted.add(address)
                sizes[kind] += tensor.untyped_storage().nbytes()
    return sizes


def _gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
