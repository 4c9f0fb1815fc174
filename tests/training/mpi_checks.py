"""Run under mpiexec by test_mpi: holds every collective of the backend over mpi4py to gloo's, on random tensors."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from dmls_ray.training.mpi_backend import backend_name, world

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int32, torch.int64, torch.uint8)
OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


def some_tensor(chance: random.Random, dtype: torch.dtype) -> Tensor:
    """Of a random shape, empty and without dimensions included; sometimes not contiguous. Alike on all ranks but for
    its values."""
    shape = [chance.randrange(0, 5) for _ in range(chance.randrange(0, 4))]
    values = torch.randint(1, 5, shape).to(dtype)
    if len(shape) > 1 and chance.random() < 0.5:
        values = values.transpose(0, 1)
    return values


def equal(name: str, mine: Tensor, theirs: Tensor) -> None:
    assert mine.dtype == theirs.dtype, name
    assert torch.equal(mine, theirs), f"{name}: {mine} is not {theirs}"


def reduced(name: str, tensor: Tensor, gloo: Any) -> None:
    """all_reduce, reduce and reduce_scatter."""
    operation = getattr(dist.ReduceOp, name)
    floats = tensor.dtype.is_floating_point
    if (floats and name.startswith("B")) or (not floats and name == "AVG"):
        with pytest.raises(ValueError, match="has no reduction"):
            dist.all_reduce(tensor.clone(), operation)
        return
    size, rank = dist.get_world_size(), dist.get_rank()
    parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(size)]
    dist.all_gather(parts, tensor.contiguous(), group=gloo)
    wide = [part.double() if floats else part for part in parts]
    combine: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "SUM": torch.add, "AVG": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
        "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor,
    }  # fmt: skip
    expected = wide[0]
    for part in wide[1:]:
        expected = combine[name](expected, part)
    expected = (expected / size if name == "AVG" else expected).to(tensor.dtype)
    mine = tensor.clone()
    dist.all_reduce(mine, operation)
    equal(f"all_reduce {name}", mine, expected)
    at_root = tensor.clone()
    dist.reduce(at_root, size - 1, operation)
    equal(f"reduce {name}", at_root, expected if rank == size - 1 else tensor)
    output = torch.empty(tensor.numel(), dtype=tensor.dtype)
    dist.reduce_scatter_tensor(output, tensor.reshape(-1).repeat(size), operation)
    equal(f"reduce_scatter {name}", output, expected.reshape(-1))


def moved(tensor: Tensor, gloo: Any) -> None:
    """What copies: broadcast, all_gather, gather, scatter, send and recv."""
    size, rank = dist.get_world_size(), dist.get_rank()
    # gloo takes neither bf16 nor tensors with holes everywhere; what only moves may be compared as float64.
    for root in range(size):
        mine, theirs = tensor.clone(), tensor.double().contiguous()
        dist.broadcast(mine, root)
        dist.broadcast(theirs, root, group=gloo)
        equal("broadcast", mine.double(), theirs)
    parts, wide = [[torch.empty_like(item) for _ in range(size)] for item in (tensor, tensor.double().contiguous())]
    dist.all_gather(parts, tensor)
    dist.all_gather(wide, tensor.double().contiguous(), group=gloo)
    for one, other in zip(parts, wide, strict=True):
        equal("all_gather", one.double(), other)
    whole = torch.empty((size, *tensor.shape), dtype=tensor.dtype)
    if tensor.ndim:
        dist.all_gather_into_tensor(whole.reshape(size * tensor.shape[0], *tensor.shape[1:]), tensor.contiguous())
        for one, other in zip(whole, wide, strict=True):
            equal("all_gather_into_tensor", one.double(), other)
    at_root = [torch.empty_like(tensor) for _ in range(size)] if rank == 0 else None
    dist.gather(tensor, at_root, 0)
    for one, other in zip(at_root or [], wide, strict=False):
        equal("gather", one.double(), other)
    piece = torch.empty_like(tensor)
    dist.scatter(piece, [part.clone() for part in parts] if rank == 0 else None, 0)
    equal("scatter", piece, parts[rank])
    pieces = tensor.reshape(-1).repeat(size)
    mixed, theirs = torch.empty_like(pieces), torch.empty_like(pieces)
    dist.all_to_all_single(mixed, pieces)
    dist.all_to_all_single(theirs, pieces, group=gloo)
    equal("all_to_all", mixed, theirs)
    if rank == 0:
        dist.send(tensor, 1)
    elif rank == 1:
        arrived = torch.empty_like(tensor)
        dist.recv(arrived, 0)
        equal("recv", arrived, parts[0])


def main(cases: int) -> None:
    """Compare; an assertion ends all ranks."""
    comm = world()
    rank, size = comm.rank, comm.size
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = comm.bcast(store.port if store else None)
    store = store or dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group(backend_name(), store=store, rank=rank, world_size=size)
    gloo = dist.new_group(backend="gloo")
    chance = random.Random(comm.bcast(random.randrange(2**32)))
    torch.manual_seed(rank)
    for _ in range(cases):
        dtype = chance.choice(FLOATS + WHOLE)
        tensor = some_tensor(chance, dtype)
        reduced(chance.choice(OPERATIONS), tensor, gloo)
        moved(tensor, gloo)
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    assert flags.tolist() == [True, True, False]
    told: list[Any] = [None] * size
    dist.all_gather_object(told, {"rank": rank})
    assert told == [{"rank": number} for number in range(size)]
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(20)]
    for work in works:
        assert work is not None
        work.wait()
    dist.barrier()
    with pytest.raises(ValueError, match="has no reduction"):
        dist.all_reduce(torch.ones(1), dist._make_nccl_premul_sum(2.0))
    dist.destroy_process_group()
    if rank == 0:
        print(f"{cases} cases on {size} ranks")


if __name__ == "__main__":
    main(int(sys.argv[1]))
