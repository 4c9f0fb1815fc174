"""Private APIs of PyTorch that this package needs, last seen in PyTorch 2.15.

A test checks that each of them still exists. Each entry says what happens without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel


def ddp_logging_data(ddp: DistributedDataParallel) -> dict[str, Any]:
    """Times that DDP measures; there is no public access to them.

    Without it: the columns forward_ms, backward_ms, comm_ms, overlap_ms and exposed_comm_ms are empty.
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


def around_zero_broadcasts(
    optimizer: ZeroRedundancyOptimizer, around: Callable[[], AbstractContextManager[None]]
) -> None:
    """Call ZeRO's broadcasts of updated parameters inside a context, at the end of each of its steps.

    Without it: the communication times of a run with ZeRO leave its broadcasts out.
    """
    zero: Any = optimizer
    broadcast = zero._sync_params

    def surrounded() -> None:
        with around():
            broadcast()

    zero._sync_params = surrounded


def found_inf(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """1 if `unscale_` found a gradient that is not finite, else 0, as a tensor on the device.

    Without it: a run in amp-fp16 would examine all gradients twice to count the steps that are skipped.
    """
    (found,) = scaler._found_inf_per_device(optimizer).values()
    return found


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


def inductor_freezing() -> AbstractContextManager[object]:
    """Let Inductor fold constant weights, as its int8 lowering requires.

    Without it: int8 models run slower than fp32 models.
    """
    import torch._inductor.config

    context: AbstractContextManager[object] = torch._inductor.config.patch(freezing=True)
    return context


def abort_process_group() -> None:
    """Abort the pending collectives of all NCCL groups of this process.

    Without it: a rank on GPUs that waits for a lost machine waits until its process is ended.
    """
    dist.distributed_c10d._abort_process_group()


def backend_class() -> type:
    """Base class of backends of torch.distributed that are written in Python.

    Without it: backend=mpi needs a PyTorch that was built with MPI.
    """
    from torch._C._distributed_c10d import Backend

    return Backend


def work_of(future: Future[Any]) -> Any:
    """What a backend in Python returns from a collective: `wait` of it waits for the future.

    Without it: as `backend_class`.
    """
    from torch._C._distributed_c10d import _create_work_from_future

    return _create_work_from_future(future)
