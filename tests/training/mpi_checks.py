"""Run under mpiexec by test_mpi_backend: compares the collectives over mpi4py with what they are defined as."""

from __future__ import annotations

import random
import sys

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from dmls_ray.training.mpi_backend import backend_name, world

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int32, torch.int64, torch.uint8)


def random_tensors(generator: random.Random, size: int) -> list[Tensor]:
    """A tensor of each rank, of one random type and shape: maybe empty, without dimensions or not contiguous."""
    shape = [generator.randrange(0, 5) for _ in range(generator.randrange(0, 4))]
    kind = generator.choice(FLOATS + WHOLE)
    tensors = [torch.randint(1, 5, shape).to(kind) for _ in range(size)]
    if len(shape) > 1 and generator.random() < 0.5:
        tensors = [tensor.transpose(0, 1) for tensor in tensors]
    return tensors


def assert_equal(collective: str, actual: Tensor, expected: Tensor) -> None:
    assert torch.equal(actual, expected), f"{collective}: {actual} is not {expected}"


def check_reduction(name: str, tensors: list[Tensor], rank: int) -> None:
    operation, kind = getattr(dist.ReduceOp, name), tensors[0].dtype
    if name == "AVG" and not kind.is_floating_point:
        with pytest.raises(ValueError, match="has no reduction"):
            dist.all_reduce(tensors[rank].clone(), operation)
        return
    stacked = torch.stack([tensor.double() for tensor in tensors])
    expected = {"SUM": stacked.sum, "AVG": stacked.mean, "MIN": stacked.amin, "MAX": stacked.amax}[name](0)
    actual = tensors[rank].clone()
    dist.all_reduce(actual, operation)
    assert_equal(f"all_reduce {name}", actual, expected.to(kind))


def check_copies(tensors: list[Tensor], rank: int) -> None:
    for root, expected in enumerate(tensors):
        actual = tensors[rank].clone()
        dist.broadcast(actual, root)
        assert_equal("broadcast", actual, expected)
    parts = [torch.empty_like(tensor) for tensor in tensors]
    dist.all_gather(parts, tensors[rank])
    for actual, expected in zip(parts, tensors, strict=True):
        assert_equal("all_gather", actual, expected)
    if tensors[0].ndim:
        gathered = torch.cat([torch.zeros_like(tensor) for tensor in tensors]).contiguous()
        dist.all_gather_into_tensor(gathered, tensors[rank].contiguous())
        assert_equal("all_gather_into_tensor", gathered, torch.cat(tensors))


def main(cases: int) -> None:
    """Compare. A failed assertion ends all ranks."""
    comm = world()
    rank, size = comm.rank, comm.size
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = comm.bcast(store.port if store else None)
    store = store or dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group(backend_name(), store=store, rank=rank, world_size=size)
    # All ranks know the tensors of all.
    seed = comm.bcast(random.randrange(2**32))
    generator = random.Random(seed)
    torch.manual_seed(seed)

    for _ in range(cases):
        tensors = random_tensors(generator, size)
        check_reduction(generator.choice(["SUM", "AVG", "MIN", "MAX"]), tensors, rank)
        check_copies(tensors, rank)
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    assert flags.tolist() == [True, True, False]

    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(20)]
    for work in works:
        work.wait()
    dist.barrier()
    with pytest.raises(ValueError, match="has no reduction"):
        dist.all_reduce(torch.ones(1), dist._make_nccl_premul_sum(2.0))
    with pytest.raises(RuntimeError, match="Backend mpi4py does not support reduce_scatter"):
        dist.reduce_scatter_tensor(torch.ones(1), torch.ones(size))
    dist.destroy_process_group()
    if rank == 0:
        print(f"{cases} cases on {size} ranks")


if __name__ == "__main__":
    main(int(sys.argv[1]))
