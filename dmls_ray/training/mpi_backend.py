"""A torch.distributed backend over mpi4py, for a PyTorch that was not built with MPI (its wheels never are).

As PyTorch's own MPI backend does, it gives every collective to one thread, in the order of their calls: so computation
overlaps communication, and only one thread ever calls MPI.

What MPI has no type for goes another way: bf16 and fp16 are reduced in float32 and rounded once; whatever is only moved
goes as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Backend
from torch.futures import Future

from dmls_ray.training.compat import work_of
from dmls_ray.util.errors import UnavailableError

NAME = "mpi4py"
"""What the backend is called in torch.distributed, where `mpi` is PyTorch's own."""

_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.uint8}


def backend_name() -> str:
    """What to ask torch.distributed for: its own MPI where it has one, else this one, which is registered first.

    Raises:
        UnavailableError: mpi4py is not installed.
    """
    if dist.is_mpi_available():
        return "mpi"
    world()
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _make, devices=["cpu"])
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


def _make(store: dist.Store, rank: int, size: int, timeout: timedelta) -> MPIBackend:
    return MPIBackend(rank, size)


class MPIBackend(Backend):
    """Collectives of CPU tensors over MPI's communicator of all ranks."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._comm = world().Dup()
        if self._comm.size != size:
            raise RuntimeError(
                f"MPI has {self._comm.size} ranks and the process group {size}; a part is not supported."
            )
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mpi")

    # What C++ calls goes by these names; some of them are new in PyTorch 2.10 or so, and some are gone since.

    def getBackendName(self) -> str:
        return NAME

    _get_backend_name = getBackendName

    def allreduce(self, tensors: Sequence[Tensor], options: Any = None) -> Any:
        operation = _operation(getattr(options, "reduceOp", dist.ReduceOp.SUM), tensors)

        def do() -> None:
            for item in tensors:
                self._reduce(item, *operation)

        return self._later(tensors, do)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], options: Any = None) -> Any:
        return self.allreduce(tensors, options)

    def reduce(self, tensors: Sequence[Tensor], options: Any) -> Any:
        operation = _operation(options.reduceOp, tensors)
        root = options.rootRank

        def do() -> None:
            for item in tensors:
                # The others' tensors stay as they are.
                self._reduce(item if self._comm.rank == root else item.clone(), *operation)

        return self._later(tensors, do)

    def broadcast(self, tensors: Sequence[Tensor], options: Any = None) -> Any:
        root = getattr(options, "rootRank", 0)

        def do() -> None:
            for item in tensors:
                self._broadcast(item, root)

        return self._later(tensors, do)

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any = None) -> Any:
        def do() -> None:
            for parts, mine in zip(outputs, inputs, strict=True):
                self._gather_all(parts, mine)

        return self._later(outputs, do)

    def all_gather_single(self, output: Tensor, mine: Tensor, options: Any = None) -> Any:
        return self._later([output], lambda: self._gather_whole(output, mine))

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], options: Any = None
    ) -> Any:
        def do() -> None:
            for output, mine in zip(outputs, inputs, strict=True):
                self._gather_whole(output, mine)

        return self._later(outputs, do)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], options: Any) -> Any:
        root = options.rootRank

        def do() -> None:
            (mine,) = inputs
            # Everybody gets everything: simple, and a gather is no part of training.
            parts = outputs[0] if self._comm.rank == root else [torch.empty_like(mine) for _ in range(self._comm.size)]
            self._gather_all(parts, mine)

        return self._later(outputs, do)

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], options: Any) -> Any:
        root = options.rootRank

        def do() -> None:
            (mine,) = outputs
            parts = None
            if self._comm.rank == root:
                parts = [_bytes(part.contiguous()) for part in inputs[0]]
                for rank, part in enumerate(parts):
                    if rank != root:
                        self._comm.Send(part, rank)
                _set(mine, inputs[0][root])
            else:
                whole = torch.empty_like(mine, memory_format=torch.contiguous_format)
                self._comm.Recv(_bytes(whole), root)
                _set(mine, whole)

        return self._later(outputs, do)

    def reduce_scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], options: Any = None) -> Any:
        operation = _operation(getattr(options, "reduceOp", dist.ReduceOp.SUM), outputs)

        def do() -> None:
            for mine, parts in zip(outputs, inputs, strict=True):
                for rank, part in enumerate(parts):
                    summed = part.clone()
                    self._reduce(summed, *operation)
                    if rank == self._comm.rank:
                        _set(mine, summed)

        return self._later(outputs, do)

    def reduce_scatter_single(self, output: Tensor, whole: Tensor, options: Any = None) -> Any:
        operation = _operation(getattr(options, "reduceOp", dist.ReduceOp.SUM), [output])

        def do() -> None:
            summed = whole.clone()
            self._reduce(summed, *operation)
            _set(output, summed.reshape(-1).chunk(self._comm.size)[self._comm.rank].reshape(output.shape))

        return self._later([output], do)

    _reduce_scatter_base = reduce_scatter_single

    def alltoall_base(
        self, output: Tensor, mine: Tensor, output_rows: list[int], rows: list[int], options: Any = None
    ) -> Any:
        def do() -> None:
            whole = output.detach().contiguous()
            sent, taken = (
                [count * item[:1].nbytes for count in counts or [len(item) // self._comm.size] * self._comm.size]
                for item, counts in ((mine, rows), (whole, output_rows))
            )
            self._comm.Alltoallv([_bytes(mine.detach().contiguous()), sent], [_bytes(whole), taken])
            _set(output, whole)

        return self._later([output], do)

    all_to_all_single = alltoall_base

    def send(self, tensors: Sequence[Tensor], to: int, tag: int) -> Any:
        (item,) = tensors
        return self._later(tensors, lambda: self._comm.Send(_bytes(item.detach().contiguous()), to, tag))

    def recv(self, tensors: Sequence[Tensor], source: int, tag: int) -> Any:
        (item,) = tensors

        def do() -> None:
            whole = torch.empty_like(item, memory_format=torch.contiguous_format)
            self._comm.Recv(_bytes(whole), source, tag)
            _set(item, whole)

        return self._later(tensors, do)

    def barrier(self, options: Any = None) -> Any:
        return self._later([], self._comm.Barrier)

    def shutdown(self) -> None:
        self._thread.shutdown()

    # --- in the thread --------------------------------------------------------------------------------------------

    def _later(self, result: Any, do: Callable[[], Any]) -> Any:
        """Have it done after all that was asked for before; the work that is returned waits for it."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                with torch.no_grad():
                    do()
            except Exception as error:  # noqa: BLE001 - whoever waits for the work gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        self._thread.submit(run)
        return work_of(future)

    def _reduce(self, tensor: Tensor, operation: Any, average: bool) -> None:
        """Over all ranks, in place."""
        wide = tensor.detach().to(_WIDER.get(tensor.dtype, tensor.dtype)).contiguous()
        from mpi4py import MPI

        self._comm.Allreduce(MPI.IN_PLACE, wide.reshape(-1).numpy(), operation)
        if average:
            wide /= self._comm.size
        _set(tensor, wide)

    def _broadcast(self, tensor: Tensor, root: int) -> None:
        whole = tensor.detach().contiguous()
        self._comm.Bcast(_bytes(whole), root)
        _set(tensor, whole)

    def _gather_all(self, parts: Sequence[Tensor], mine: Tensor) -> None:
        whole = torch.empty((self._comm.size, *mine.shape), dtype=mine.dtype)
        self._gather_whole(whole, mine)
        for part, values in zip(parts, whole, strict=True):
            _set(part, values)

    def _gather_whole(self, output: Tensor, mine: Tensor) -> None:
        whole = output.detach().contiguous()
        self._comm.Allgather(_bytes(mine.detach().contiguous()), _bytes(whole))
        _set(output, whole)


def _operation(asked: Any, tensors: Sequence[Tensor]) -> tuple[Any, bool]:
    """MPI's operation, and whether the result is to be divided by the number of ranks.

    Raises:
        ValueError: MPI has no such operation for these tensors.
    """
    from mpi4py import MPI

    known = {"SUM": MPI.SUM, "AVG": MPI.SUM, "PRODUCT": MPI.PROD, "MIN": MPI.MIN, "MAX": MPI.MAX}
    known |= {"BAND": MPI.BAND, "BOR": MPI.BOR, "BXOR": MPI.BXOR}
    name = next((name for name in known if asked == getattr(dist.ReduceOp, name)), None)
    floats = any(item.dtype.is_floating_point for item in tensors)
    if name is None or (floats and name.startswith("B")) or (not floats and name == "AVG"):
        kind = "floating-point numbers" if floats else "whole numbers"
        raise ValueError(f"The backend over mpi4py has no reduction {name or asked} of {kind}.")
    return known[name], name == "AVG"


def _bytes(whole: Tensor) -> Any:
    """The memory of a contiguous tensor."""
    return whole.reshape(-1).view(torch.uint8).numpy()


def _set(tensor: Tensor, value: Tensor) -> None:
    if value.data_ptr() != tensor.data_ptr() or value.dtype != tensor.dtype:
        tensor.detach().copy_(value)
