"""Preparation of a process for runs: seeds, threads, switches, environment variables, the process group, and a training
that is discarded."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import socket
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.training.compat import reset_compiler
from dmls_ray.training.precision import set_tf32
from dmls_ray.training.rank import RankInfo

HOLD_OUT, AUGMENTATION, TRAIN_EVALUATION = 1, 2, 3
"""Purposes of random numbers, as an argument of `mixed_seed`."""

_TIMEOUT = timedelta(minutes=30)
"""How long a rank may wait for the others, in a collective and before its run."""

_MAY_WAIT = 2048
"""Connections that may wait at a store at the same time, as in PyTorch."""


def prepare_process(config: RuntimeConfig, rank: RankInfo, *, tf32: bool = False) -> None:
    """Set what the configuration of a run says of its process; `tf32`: whether matrix units may round to TF32.

    All ranks get the same seed, so that they build the same model.
    """
    # Before the lines that give memory back, since it releases some.
    reset_compiler()
    gc.collect()
    device = torch.device(rank.device)
    torch.set_num_threads(config.threads_per_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.empty_cache()
    set_tf32(tf32)
    seed_process(config.seed)


def mixed_seed(*numbers: int) -> int:
    """A seed that depends on all of the numbers, so that two purposes do not draw the same random numbers.

    It has 32 bits, since PyTorch's generator ignores further bits.
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def seed_process(seed: int) -> None:
    """Seed all generators of this process."""
    torch.manual_seed(seed)
    seed_worker(seed)


def seed_worker(seed: int) -> None:
    """Seed the generators of a CPU process. Seeding those of GPUs as well would take a hundred times as long."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def random_state() -> dict[str, Any]:
    """The state of all generators in types that torch.load(weights_only=True) accepts."""
    algorithm, keys, *position = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
        "numpy": (algorithm, np.asarray(keys).tolist(), *position),
        "python": random.getstate(),
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore the state of all generators."""
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"].cpu())
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])


def end_with_parent(*_: object) -> None:
    """End this process of `multiprocessing` when the one that asked for it has ended: nothing wants its result."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def process_group(rank: RankInfo, store: dist.Store | None) -> Iterator[None]:
    """The default process group of one run; none at world size 1.

    Args:
        rank: this rank; `rank.backend` names the backend.
        store: key-value store of this run only, where its ranks meet.
    """
    if rank.world_size == 1:
        yield
        return
    device = torch.device(rank.device)
    backend = rank.backend
    if backend == "mpi":
        from dmls_ray.training.mpi_backend import backend_name

        backend = backend_name()
    dist.init_process_group(
        backend,
        store=store,
        rank=rank.rank,
        world_size=rank.world_size,
        timeout=_TIMEOUT,
        device_id=device if rank.backend == "nccl" else None,
    )
    try:
        if rank.backend == "gloo":
            # A rank cannot connect to one that has left already, as a function without collectives does at once.
            wait_for_others(rank)
        yield
    finally:
        # The training function may have done so, as programs for torchrun do at their end.
        if dist.is_initialized():
            dist.destroy_process_group()


def store_at(host: str) -> dist.TCPStore:
    """A key-value store of this process that listens at this address, on a free port.

    By default PyTorch's store listens on all interfaces, and anyone who reaches it can write to it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family, backlog=_MAY_WAIT)
    port = listening.getsockname()[1]
    # The store takes over the socket.
    return dist.TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())


def wait_for_ranks(store: dist.Store, world_size: int) -> None:
    """Wait until all ranks of a run have called this, with the run's store."""
    if store.add("ranks-there", 1) == world_size:
        store.set("all-there", "")
    store.wait(["all-there"], _TIMEOUT)


class Collective:
    """Sums, maxima and barriers over the ranks of a run; at world size 1 they cost nothing."""

    def __init__(self, rank: RankInfo, device: torch.device) -> None:
        self._alone = rank.world_size == 1
        self._device = device if rank.backend == "nccl" else torch.device("cpu")

    def barrier(self) -> None:
        """Wait for all ranks."""
        if not self._alone:
            # Reading the result of a reduction waits for every rank with any backend; NCCL's barrier does not block the
            # host.
            self.sum([0.0])

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each value's sum over all ranks, in float64."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def max(self, values: Sequence[float]) -> list[float]:
        """Each value's maximum over all ranks, in float64."""
        return self._reduce(values, dist.ReduceOp.MAX)

    def from_first(self, values: Sequence[float]) -> list[float]:
        """Rank 0's values, on all ranks."""
        if self._alone:
            return list(values)
        # A sum with zeros is exact, and needs no collective besides all_reduce.
        return self.sum(values if dist.get_rank() == 0 else [0.0] * len(values))

    def broadcast_buffers(self, model: nn.Module) -> None:
        """Give all ranks rank 0's buffers: DDP does so before each forward pass only, so after the last step running
        statistics differ, and the ranks would test different models."""
        if not self._alone:
            for buffer in model.buffers():
                dist.broadcast(buffer, 0)

    def _reduce(self, values: Sequence[float], op: dist.ReduceOp.RedOpType) -> list[float]:
        if self._alone:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self._device)
        dist.all_reduce(tensor, op=op)
        reduced: list[float] = tensor.tolist()
        return reduced


def wait_for_others(rank: RankInfo) -> None:
    """Wait for all ranks after untimed work: a rank that had less of it would wait in its set-up, which is timed."""
    Collective(rank, torch.device(rank.device)).barrier()


VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
)  # fmt: skip
"""What decides, for these libraries, whether there are other ranks. Of torchrun's own, the last is only taken away:
with it, Lightning finds its rank in another way than under the other launchers."""


def set_torchrun_environment(rank: RankInfo, threads: int) -> None:
    """Set the variables for a run; at world size 1, which has no process group, none of them is set.

    Args:
        rank: this rank.
        threads: threads per rank. Libraries choose another number themselves if OMP_NUM_THREADS is not set.
    """
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


_DISCARDED_STEPS = 6


def discard_first_run(device: str) -> float:
    """Train a small model on this device, in a process group of this process alone; returns the seconds that it took.

    The first training of a process is slower than later ones: PyTorch loads much at its first use, and makes its
    threads and memory pools. A failure is only a warning: if the device cannot be used, the runs will say so.
    """
    began = time.perf_counter()
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            _train(torch.device(device))
        finally:
            dist.destroy_process_group()
    except Exception as error:  # noqa: BLE001 - nothing that a user asked for has failed
        warnings.warn(f"The first run of this process may be slow: {type(error).__name__}: {error}", stacklevel=2)
    return time.perf_counter() - began


def _train(device: torch.device) -> None:
    """Train and test a convolution and a linear layer on images of zeros."""
    layers = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)
    model = nn.Sequential(*layers).to(device)
    # On a GPU there is no DDP, since setting up NCCL would take longer than a run.
    forward = DistributedDataParallel(model) if device.type == "cpu" else model
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    images = torch.zeros(4, 1, 8, 8, device=device)
    labels = torch.zeros(4, dtype=torch.int64, device=device)

    for _ in range(_DISCARDED_STEPS):
        F.cross_entropy(forward(images), labels, reduction="sum").backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.inference_mode():
        model.eval()(images).argmax(1)
    dist.all_reduce(torch.zeros(1, dtype=torch.float64))
