"""A torch.distributed backend over mpi4py, for a PyTorch that was not built with MPI, as its wheels are not.

It has the collectives that DDP, ZeroRedundancyOptimizer and this package call. PyTorch raises
an error that names the backend and the collective for every other one.
As in PyTorch's own MPI backend, one thread runs the collectives in the order of their calls. So computation overlaps
with communication, and only one thread calls MPI.

MPI has no type for bf16 and fp16: such tensors are reduced in float32 and rounded once, and are copied as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from dmls_ray.training.compat import BackendInPython, work_of
from dmls_ray.util.errors import UnavailableError

NAME = "mpi4py"
"""Name of the backend in torch.distributed, where `mpi` is PyTorch's own backend."""

_REDUCED_AS = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.uint8}


def backend_name() -> str:
    """Name for torch.distributed: PyTorch's own MPI backend if there is one, else this backend, which is registered.

    Raises:
        UnavailableError: mpi4py is not installed.
    """
    if dist.is_mpi_available():
        return "mpi"
    world()
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, lambda store, rank, size, timeout: MPIBackend(rank, size), devices=["cpu"])
    return NAME


def world() -> Any:
    """MPI's communicator of all ranks.

    Raises:
        UnavailableError: mpi4py is not installed.
    """
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise UnavailableError(f"backend=mpi needs mpi4py and MPI: pip install 'dmls_ray[mpi]' ({error}).") from error
    return MPI.COMM_WORLD


class MPIBackend(BackendInPython):
    """Collectives of CPU tensors over MPI's communicator of all ranks."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._comm = world().Dup()
        if self._comm.size != size:
            raise RuntimeError(
                f"MPI has {self._comm.size} ranks and the process group {size}; a part is not supported."
            )
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mpi")

    # C++ calls these methods by these names, which differ between versions of PyTorch.

    def getBackendName(self) -> str:
        return NAME

    _get_backend_name = getBackendName

    def allreduce(self, tensors: Sequence[Tensor], options: Any = None) -> Any:
        operation, average = _operation(getattr(options, "reduceOp", dist.ReduceOp.SUM), tensors)

        def reduce_all() -> None:
            from mpi4py import MPI

            for tensor in tensors:
                buffer = tensor.detach().to(_REDUCED_AS.get(tensor.dtype, tensor.dtype)).contiguous()
                self._comm.Allreduce(MPI.IN_PLACE, buffer.reshape(-1).numpy(), operation)
                if average:
                    buffer /= self._comm.size
                _assign(tensor, buffer)

        return self._submit(tensors, reduce_all)

    def broadcast(self, tensors: Sequence[Tensor], options: Any = None) -> Any:
        root = getattr(options, "rootRank", 0)

        def broadcast_all() -> None:
            for tensor in tensors:
                buffer = tensor.detach().contiguous()
                self._comm.Bcast(_bytes(buffer), root)
                _assign(tensor, buffer)

        return self._submit(tensors, broadcast_all)

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any = None) -> Any:
        def gather_all() -> None:
            for parts, tensor in zip(outputs, inputs, strict=True):
                gathered = torch.empty((self._comm.size, *tensor.shape), dtype=tensor.dtype)
                self._comm.Allgather(_bytes(tensor.detach().contiguous()), _bytes(gathered))
                for part, values in zip(parts, gathered, strict=True):
                    _assign(part, values)

        return self._submit(outputs, gather_all)

    def all_gather_single(self, output: Tensor, tensor: Tensor, options: Any = None) -> Any:
        return self.allgather([output.view(self._comm.size, *tensor.shape).unbind()], [tensor])

    _allgather_base = all_gather_single

    def barrier(self, options: Any = None) -> Any:
        return self._submit([], self._comm.Barrier)

    def shutdown(self) -> None:
        self._thread.shutdown()

    # --- in the thread --------------------------------------------------------------------------------------------

    def _submit(self, result: Any, collective: Callable[[], Any]) -> Any:
        """Run a collective after all earlier ones. The returned work waits for it, and has this result."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                with torch.no_grad():
                    collective()
            except Exception as error:  # noqa: BLE001 - raised where the work is waited for
                future.set_exception(error)
            else:
                future.set_result(result)

        self._thread.submit(run)
        return work_of(future)


def _operation(asked: Any, tensors: Sequence[Tensor]) -> tuple[Any, bool]:
    """MPI's operation, and whether the result is to be divided by the number of ranks.

    Raises:
        ValueError: this backend has no such operation for these tensors.
    """
    from mpi4py import MPI

    operations = {"SUM": MPI.SUM, "AVG": MPI.SUM, "MIN": MPI.MIN, "MAX": MPI.MAX}
    name = next((name for name in operations if asked == getattr(dist.ReduceOp, name)), None)
    floats = any(tensor.dtype.is_floating_point for tensor in tensors)
    if name is None or (name == "AVG" and not floats):
        kind = "floating-point numbers" if floats else "whole numbers"
        raise ValueError(f"The backend over mpi4py has no reduction {name or asked} of {kind}.")
    return operations[name], name == "AVG"


def _bytes(tensor: Tensor) -> Any:
    """The memory of a contiguous tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy()


def _assign(tensor: Tensor, values: Tensor) -> None:
    if values.data_ptr() != tensor.data_ptr() or values.dtype != tensor.dtype:
        tensor.detach().copy_(values)
