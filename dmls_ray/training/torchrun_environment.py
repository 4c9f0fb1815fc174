"""torchrun's environment variables of a run, under every launcher: libraries such as Hugging Face's look for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from dmls_ray.training.rank import RankInfo

VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
)  # fmt: skip
"""What decides, for these libraries, whether there are other ranks. Of torchrun's own, the last is only taken away:
with it, Lightning finds its rank in another way than under the other launchers."""


@contextmanager
def torchrun_environment(rank: RankInfo, threads: int) -> Iterator[None]:
    """Set the variables for the block; at world size 1, which has no process group, none of them is set.

    After the block they are as before it, whatever the block has changed: a worker process serves many runs.

    Args:
        rank: this rank.
        threads: threads per rank. Libraries choose another number themselves if OMP_NUM_THREADS is not set.
    """
    before = {name: os.environ.get(name) for name in (*VARIABLES, "OMP_NUM_THREADS")}
    for name in VARIABLES:
        os.environ.pop(name, None)
    if rank.world_size > 1:
        os.environ |= {
            "RANK": str(rank.rank),
            "LOCAL_RANK": str(rank.local_rank),
            "WORLD_SIZE": str(rank.world_size),
            "LOCAL_WORLD_SIZE": str(rank.local_world_size),
            "GROUP_RANK": str(rank.machine_rank),
            "OMP_NUM_THREADS": str(threads),
        }
        if rank.store_address is not None:
            host, port = rank.store_address
            os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
    try:
        yield
    finally:
        for name in before:
            os.environ.pop(name, None)
        os.environ |= {name: value for name, value in before.items() if value is not None}
