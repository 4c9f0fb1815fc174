"""Private APIs of PyTorch that this package needs, last seen in PyTorch 2.15.

A test checks that each of them still exists. Each entry says what happens without it. One module because whoever tries
another version of PyTorch reads it from top to bottom.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import distributed as dist
from torch._C import _autograd
from torch._C._distributed_c10d import Backend, _create_work_from_future
from torch._C._profiler import RecordScope, _EventType
from torch.autograd.graph import _engine_run_backward
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.data.dataloader import _BaseDataLoaderIter


def ddp_logging_data(ddp: DistributedDataParallel) -> dict[str, Any]:
    """Times that DDP measures; there is no public access to them.

    Without it: the columns comm_ms, overlap_ms and exposed_comm_ms are empty.
    """
    data: dict[str, Any] = ddp._get_ddp_logging_data()
    return data


def set_ddp_sample_rate(ddp: DistributedDataParallel, every: int) -> None:
    """Let DDP measure these times in every n-th pass only, since measuring waits for the device.

    DDP measures each of its first 10 passes at any rate. Without it: DDP chooses its rate, and runs on GPUs get slower.
    """
    ddp._set_ddp_runtime_logging_sample_rate(every)


def measured_passes(data: Mapping[str, Any], every: int) -> int:
    """How many passes the averages in `ddp_logging_data` are of, at the rate that was set."""
    last = int(data.get("iteration", 0))
    return min(last, 10) + max(last // every - 10 // every, 0)


def late_hooks(ddp: DistributedDataParallel) -> dict[str, int]:
    """The communication hooks of a model that leave its first gradients as they are: name -> how many passes.

    Without it: a compression that begins after the passes of a run is taken for one without a difference.
    """
    starts = {"powerSGD_hook": "start_powerSGD_iter", "post_localSGD_hook": "start_localSGD_iter"}
    late = {}
    for hook, state in ddp._comm_hooks:
        # Not of a hook that compresses what this one then leaves as it is.
        module = getattr(hook, "__module__", "").rpartition(".")[2]
        if module in starts:
            late[hook.__name__] = int(getattr(state, starts[module], 0))
    return late


def around_loader_waits(
    begin: Callable[[Any], object], end: Callable[[Any, Any], object]
) -> AbstractContextManager[object]:
    """Call two functions before and after each wait for a batch of any DataLoader, while the context lasts.

    Both are given the loader's iterator, the second the batch, too; None at the end of the data.

    Without it: what a user-defined function waits for its data is not known.
    """
    wait = _BaseDataLoaderIter.__next__

    def surrounded(iterator: Any) -> Any:
        begin(iterator)
        batch = None
        try:
            batch = wait(iterator)
        finally:
            end(iterator, batch)
        return batch

    return patch.object(_BaseDataLoaderIter, "__next__", surrounded)


_SIZES = "_dmls_ray_sizes"
"""Attribute of a loader's iterator: that of its sampler, and the sizes of the batches that were asked for."""


def batch_sizes_noted() -> AbstractContextManager[object]:
    """While the context lasts, iterators of loaders note how many samples each batch has that they ask for.

    Without it: `next_batch_size` is 0, and the samples of a step are those that the model is given.
    """
    next_index = _BaseDataLoaderIter._next_index

    def noted(iterator: Any) -> Any:
        index = next_index(iterator)
        noted_before = iterator.__dict__.get(_SIZES)
        # An iterator that is used again, with workers that stay, has a new one of its sampler.
        if noted_before is None or noted_before[0] is not iterator._sampler_iter:
            noted_before = iterator.__dict__[_SIZES] = iterator._sampler_iter, deque()
        noted_before[1].append(len(index) if iterator._auto_collation else 0)
        return index

    return patch.object(_BaseDataLoaderIter, "_next_index", noted)


def next_batch_size(iterator: Any) -> int:
    """The samples of the batch that an iterator has just given; 0 where its loader has no batches."""
    noted = iterator.__dict__.get(_SIZES)
    return noted[1].popleft() if noted and noted[1] else 0


def dataset_of(iterator: Any) -> Any:
    """The data set that an iterator of a loader reads.

    Without it: batches of a test are taken for those of the training.
    """
    return iterator._dataset


def sampler_of(iterator: Any) -> Any:
    """The sampler of an iterator's loader, which says the order of the samples; None where it has none.

    Without it: as `dataset_of`.
    """
    return getattr(iterator._index_sampler, "sampler", None)


def sampled_size(iterator: Any) -> int:
    """The usual size of the batches of an iterator's loader; 0 where they have none.

    Without it: as `dataset_of`.
    """
    return getattr(iterator._index_sampler, "batch_size", None) or 0


def _kept(given: Any) -> Any:
    """What a program gives to a backward pass, as a tuple where it may be read only once."""
    return given if given is None or isinstance(given, torch.Tensor | tuple) else tuple(given)


def around_backward_passes(
    begin: Callable[[Any, Any], object], end: Callable[[], object]
) -> AbstractContextManager[object]:
    """Call two functions before and after each backward pass, while the context lasts.

    The first is given what the pass begins with, a tensor or several, and the gradients of these or None.

    Without it: forward and backward pass of a user-defined function are not separated from the rest of a step.
    """
    backward = torch.autograd.backward

    def surrounded(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
        roots, weights = _kept(tensors), _kept(grad_tensors)
        begin(roots, weights)
        try:
            backward(roots, weights, *args, **kwargs)
        finally:
            end()

    return patch.object(torch.autograd, "backward", surrounded)


def before_gradients(begin: Callable[[], object]) -> AbstractContextManager[object]:
    """Call a function before each call of `torch.autograd.grad`, while the context lasts.

    Without it: adversarial examples that a script makes in evaluation mode are taken for tests.
    """
    grad = torch.autograd.grad

    def preceded(*args: Any, **kwargs: Any) -> Any:
        begin()
        return grad(*args, **kwargs)

    return patch.object(torch.autograd, "grad", preceded)


def is_transformed() -> bool:
    """Whether code runs within a transform of `torch.func`, as `vmap`, which gives a model single samples.

    Without it: the samples of a script that computes gradients of each sample are 1.
    """
    return torch._C._functorch.peek_interpreter_stack() is not None


DispatchMode: type = TorchDispatchMode
"""Base class of what sees each operator that a program calls.

Without it: the operations of a step are not known."""

current_dispatch_mode: Callable[[], Any] = _get_current_dispatch_mode
"""The mode that was entered last and not left; None without any.

Without it: as `DispatchMode`."""


def is_computed_again() -> bool:
    """Whether this is called by a forward pass within a backward pass: by a module, or by PyTorch's checkpointing.

    Without it: what is computed again counts as operations of the model.
    """
    if torch._C._current_graph_task_id() < 0:
        return False
    frame: FrameType | None = sys._getframe()
    # Up to the call of the backward pass, which may be one within another.
    while frame is not None and frame.f_code is not _engine_run_backward.__code__:
        if frame.f_code is torch.nn.Module._call_impl.__code__ or frame.f_code.co_filename == checkpoint.__file__:
            return True
        frame = frame.f_back
    return False


next_node: Callable[[], int] = _autograd._get_sequence_nr
"""The number of the next node of the graph that this thread makes: nodes are numbered as they are made.

Without it: a batch whose loss is not trained on counts, and so does a second loss of one forward pass."""


def nodes_in_graph(roots: Iterable[torch.Tensor]) -> Iterator[int]:
    """The numbers of the nodes of the graph of some tensors, but for its leaves; as `next_node`."""
    waiting = [root.grad_fn for root in roots]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node is None or hasattr(node, "variable"):
            continue
        yield node._sequence_nr()
        above = {function for function, _ in node.next_functions} - seen
        seen |= above
        waiting += above


def after_each_scaled_loss(scaled: Callable[[Any, Any], object]) -> AbstractContextManager[object]:
    """Call a function with each loss that a GradScaler scales, and the scaled loss, while the context lasts.

    Without it: losses of a script in mixed precision are those that its scaler has made of them.
    """
    scale = torch.amp.GradScaler.scale

    def surrounded(scaler: torch.amp.GradScaler, loss: Any) -> Any:
        result = scale(scaler, loss)
        scaled(loss, result)
        return result

    return patch.object(torch.amp.GradScaler, "scale", surrounded)


def after_each(made: type, called: Callable[[Any], object]) -> AbstractContextManager[object]:
    """Call a function with each new object of a class of PyTorch, as DDP or an optimizer, while the context lasts.

    Without it: communication of a user-defined function is not known.
    """
    initialize = made.__init__  # type: ignore[misc]

    def surrounded(item: Any, *args: Any, **kwargs: Any) -> None:
        initialize(item, *args, **kwargs)
        called(item)

    return patch.object(made, "__init__", surrounded)


def found_inf(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """1 if `unscale_` found a gradient that is not finite, else 0, as a tensor on the device.

    Without it: a run in amp-fp16 would examine all gradients twice to count the steps that are skipped.
    """
    (found,) = scaler._found_inf_per_device(optimizer).values()
    return found


def is_skipped(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the step of an optimizer under way, which looks at its gradients itself, changes nothing.

    Unknown on a GPU, where the answer would be waited for. Without it: batches that a GradScaler skips count where the
    optimizer is fused.
    """
    found: torch.Tensor | None = getattr(optimizer, "found_inf", None)
    return found is not None and found.is_cpu and bool(found)


def sequence_numbers() -> dict[str, int] | None:
    """Number of collectives so far of each process group; None where a backend does not count them (Python's do not).

    Without it: nothing shows that the ranks of a run communicated no gradients.
    """
    if not dist.is_initialized():
        return None
    groups = dist.distributed_c10d._world.pg_map
    try:
        return {group.group_name: group._get_sequence_number_for_group() for group in groups}  # type: ignore[attr-defined]
    except RuntimeError:
        return None


def process_groups() -> list[dist.ProcessGroup]:
    """The process groups that there are, if collectives can be watched.

    Without it: the communication of other wrappers than DDP is not known.
    """
    can_watch = hasattr(dist.ProcessGroup, "register_post_hook")  # from PyTorch 2.14 on
    return list(dist.distributed_c10d._world.pg_map) if can_watch and dist.is_initialized() else []


_WATCH = 20_260_101
"""Identifier of the hooks below: others must have another one."""


def watch_collectives(group: Any, called: Callable[[str, int, bool, bool], object]) -> None:
    """Call a function before each collective of a group, and again once it was issued.

    Args:
        group: the process group.
        called: takes the name of the collective, its number in this group, whether it was issued, and whether it is
            asynchronous.

    Without it: as `process_groups`.
    """

    def take(arguments: Any) -> None:
        called(arguments.name.name, arguments.op_id, hasattr(arguments, "work"), arguments.async_op)

    group.register_pre_hook(_WATCH, take)
    group.register_post_hook(_WATCH, take)


def unwatch_collectives(group: Any) -> None:
    """End what `watch_collectives` began."""
    group.unregister_pre_hook(_WATCH)
    group.unregister_post_hook(_WATCH)


def around_waits(waited: Callable[[float], object]) -> AbstractContextManager[object]:
    """Call a function after each wait of Python code for a collective, with the time at which the wait began.

    Without it: as `process_groups`.
    """
    wait = dist.Work.wait

    def surrounded(work: Any, *arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return wait(work, *arguments, **options)
        finally:
            waited(began)

    return patch.object(dist.Work, "wait", surrounded)


def groups_made() -> int:
    """How many process groups were made, with those that are no longer there and those without this rank.

    Without it: ranks whose group the training function has destroyed count as ranks that trained apart.
    """
    return dist.distributed_c10d._world.group_count


def is_part_of_parameter(parameter: torch.Tensor) -> bool:
    """Whether a parameter is a part of one: FSDP's of either version, or a tensor over a mesh of devices.

    Without it: ranks that train one model under FSDP count as ranks that trained apart, as their parts differ.
    """
    return hasattr(parameter, "placements") or getattr(parameter, "_fsdp_flattened", False)


def reset_compiler() -> None:
    """Forget compiled graphs and counters of earlier runs in this process.

    Without it: a run could use, or run out of, the compilations of an earlier run.
    """
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def compile_counters() -> dict[str, Any]:
    """torch.compile's counters of this process: graphs, and hits and misses of the compile cache.

    Without it: compile_cache is unknown.
    """
    from torch._dynamo.utils import counters

    return counters


def compiled_graphs() -> int:
    """How many graphs torch.compile has made in this process.

    Without it: as `DispatchMode`.
    """
    return compile_counters()["stats"]["unique_graphs"] if "torch._dynamo" in sys.modules else 0


def inductor_freezing() -> AbstractContextManager[object]:
    """Let Inductor fold constant weights, as its int8 lowering requires.

    Without it: int8 models run slower than fp32 models.
    """
    import torch._inductor.config

    context: AbstractContextManager[object] = torch._inductor.config.patch(freezing=True)
    return context


BackendInPython: type = Backend
"""Base class of backends of torch.distributed that are written in Python.

Without it: backend=mpi needs a PyTorch that was built with MPI."""

work_of: Callable[[Future[Any]], Any] = _create_work_from_future
"""What a backend in Python returns from a collective: `wait` of it waits for the future.

Without it: as `BackendInPython`."""


@dataclass
class Recording:
    """What PyTorch's allocators did in a while, and the named spans of it. Times are in nanoseconds."""

    allocations: list[tuple[int, int, int]] = field(default_factory=list)
    """When, at which address, and how many bytes; negative where memory was freed."""
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, start and end of each `torch.profiler.record_function`."""


@contextmanager
def recorded_allocations(device: torch.device) -> Iterator[Recording]:
    """Record the allocations on a device, compiled code and threads of the backward pass included.

    The recording is complete after the context. There is no public access to the addresses in a profile.

    Without it: tensor_mem_mib and its kinds are unknown.
    """
    # Kineto, which is loaded with the first profile of a process, otherwise writes lines to the output of the rank.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    recording = Recording()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        yield recording
    assert profile.kineto_results is not None
    events = [*reversed(profile.kineto_results.experimental_event_tree())]
    while events:
        event = events.pop()
        events += reversed(event.children)
        if event.tag == _EventType.Allocation:
            content = event.extra_fields
            if content.device == device:
                recording.allocations.append((event.start_time_ns, content.ptr, content.alloc_size))
        elif event.tag == _EventType.TorchOp and event.extra_fields.scope == RecordScope.USER_SCOPE:
            recording.spans.append((event.name, event.start_time_ns, event.end_time_ns))
    recording.allocations.sort(key=itemgetter(0))
    recording.spans.sort(key=itemgetter(1))


def is_profiling() -> bool:
    """Whether a profile of PyTorch is under way in this thread; a second one cannot start.

    Without it: as `recorded_allocations`.
    """
    return torch.autograd._profiler_enabled()
