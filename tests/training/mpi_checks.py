"""Run under mpiexec by test_mpi_backend: compares the collectives over mpi4py with gloo's, on random tensors."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.training.mpi_backend import backend_name, world

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int32, torch.int64, torch.uint8)
COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
}


def random_tensor(generator: random.Random) -> Tensor:
    """A tensor of a random type and shape, which may be empty, without dimensions or not contiguous.

    Only its values differ between ranks.
    """
    shape = [generator.randrange(0, 5) for _ in range(generator.randrange(0, 4))]
    values = torch.randint(1, 5, shape).to(generator.choice(FLOATS + WHOLE))
    if len(shape) > 1 and generator.random() < 0.5:
        values = values.transpose(0, 1)
    return values


def assert_equal(collective: str, actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == expected.dtype, collective
    assert torch.equal(actual, expected), f"{collective}: {actual} is not {expected}"


def check_reduction(name: str, tensor: Tensor, gloo: Any) -> None:
    operation = getattr(dist.ReduceOp, name)
    floats = tensor.dtype.is_floating_point
    if name == "AVG" and not floats:
        with pytest.raises(ValueError, match="has no reduction"):
            dist.all_reduce(tensor.clone(), operation)
        return

    size = dist.get_world_size()
    parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(size)]
    dist.all_gather(parts, tensor.contiguous(), group=gloo)
    wide = [part.double() if floats else part for part in parts]
    expected = wide[0]
    for part in wide[1:]:
        expected = COMBINE[name](expected, part)
    expected = (expected / size if name == "AVG" else expected).to(tensor.dtype)

    actual = tensor.clone()
    dist.all_reduce(actual, operation)
    assert_equal(f"all_reduce {name}", actual, expected)


def check_copies(tensor: Tensor, gloo: Any) -> None:
    """Broadcast and all_gather: compared as float64, since gloo does not accept every type and layout."""
    size = dist.get_world_size()
    wide = tensor.double().contiguous()
    for root in range(size):
        actual, expected = tensor.clone(), wide.clone()
        dist.broadcast(actual, root)
        dist.broadcast(expected, root, group=gloo)
        assert_equal("broadcast", actual.double(), expected)

    actual_parts, expected_parts = [[torch.empty_like(item) for _ in range(size)] for item in (tensor, wide)]
    dist.all_gather(actual_parts, tensor)
    dist.all_gather(expected_parts, wide, group=gloo)
    for actual, expected in zip(actual_parts, expected_parts, strict=True):
        assert_equal("all_gather", actual.double(), expected)

    if tensor.ndim:
        gathered = torch.empty((size * tensor.shape[0], *tensor.shape[1:]), dtype=tensor.dtype)
        dist.all_gather_into_tensor(gathered, tensor.contiguous())
        assert_equal("all_gather_into_tensor", gathered.double(), torch.cat(expected_parts))


def check_objects() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    assert gathered == [{"rank": number} for number in range(size)]
    broadcast = [{"rank": rank}]
    dist.broadcast_object_list(broadcast, 1)
    assert broadcast == [{"rank": 1}]


def check_training() -> None:
    """A step of DDP with ZeroRedundancyOptimizer gives all ranks the same weights and the full optimizer state."""
    model = DistributedDataParallel(torch.nn.Linear(3, 2))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    model(torch.rand(4, 3)).sum().backward()
    optimizer.step()
    optimizer.consolidate_state_dict()
    if dist.get_rank() == 0:
        assert len(optimizer.state_dict()["state"]) == 2
    for parameter in model.parameters():
        at_first_rank = parameter.detach().clone()
        dist.broadcast(at_first_rank, 0)
        assert_equal("weights", parameter.detach(), at_first_rank)


def main(cases: int) -> None:
    """Compare. A failed assertion ends all ranks."""
    comm = world()
    rank, size = comm.rank, comm.size
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    port = comm.bcast(store.port if store else None)
    store = store or dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group(backend_name(), store=store, rank=rank, world_size=size)
    gloo = dist.new_group(backend="gloo")
    generator = random.Random(comm.bcast(random.randrange(2**32)))
    torch.manual_seed(rank)

    for _ in range(cases):
        tensor = random_tensor(generator)
        check_reduction(generator.choice(list(COMBINE)), tensor, gloo)
        check_copies(tensor, gloo)
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    assert flags.tolist() == [True, True, False]
    check_objects()
    check_training()

    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(20)]
    for work in works:
        assert work is not None
        work.wait()
    dist.barrier()
    with pytest.raises(ValueError, match="has no reduction"):
        dist.all_reduce(torch.ones(1), dist._make_nccl_premul_sum(2.0))
    with pytest.raises(RuntimeError, match="Backend mpi4py does not support reduce_scatter"):
        dist.reduce_scatter_tensor(torch.ones(1), torch.ones(size))
    with pytest.raises(RuntimeError, match="Backend mpi4py does not support send"):
        dist.send(torch.ones(1), (rank + 1) % size)
    dist.destroy_process_group()
    if rank == 0:
        print(f"{cases} cases on {size} ranks")


if __name__ == "__main__":
    main(int(sys.argv[1]))
