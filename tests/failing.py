"""Models that end or hang their rank at a chosen moment, to be named on a command line.

Their names are `<how>_in_<when>_of_rank_<rank>`. How: sigkill, sigsegv, stop (SIGSTOP), loop (an endless loop in
Python) or wait (for a message that never comes). When: setup, step (the second training pass) or test. The rank is 0
or 1; at world size 1 a model that names rank 1 never fails.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

from dmls_ray.training.rank import Emit, RankInfo


def _send(number: signal.Signals) -> None:
    # Reaches the calling thread at once. Another thread could act on the signal only after the end of the run.
    signal.raise_signal(number)


def _loop() -> None:
    while True:
        pass


def _wait() -> None:
    dist.recv(torch.zeros(1), src=1 - dist.get_rank())


def _grow() -> None:
    allocated = torch.ones(8 * 2**28)
    time.sleep(20)
    del allocated


HOW: dict[str, Callable[[], None]] = {
    "sigkill": functools.partial(_send, signal.SIGKILL),
    "sigsegv": functools.partial(_send, signal.SIGSEGV),
    "stop": functools.partial(_send, signal.SIGSTOP),
    "loop": _loop,
    "wait": _wait,
}


class _Failing(nn.Module):
    def __init__(self, how: str, when: str, rank: int) -> None:
        super().__init__()
        self.how, self.when = HOW[how], when
        self.fails_here = rank == (dist.get_rank() if dist.is_initialized() else 0)
        self.linear = nn.Linear(64, 4)
        self.passes = 0
        self._fail_at("setup")

    def forward(self, images: Tensor) -> Tensor:
        self.passes += self.training
        if not self.training:
            self._fail_at("test")
        elif self.passes == 2:
            self._fail_at("step")
        out: Tensor = self.linear(images.flatten(1))
        return out

    def _fail_at(self, moment: str) -> None:
        if self.fails_here and moment == self.when:
            self.how()


for _how, _when, _rank in itertools.product(HOW, ("setup", "step", "test"), (0, 1)):
    globals()[f"{_how}_in_{_when}_of_rank_{_rank}"] = functools.partial(_Failing, _how, _when, _rank)


def growing() -> nn.Module:
    """Build a model that allocates 8 GiB in the second training pass and keeps them for 20 s."""
    HOW["grow"] = _grow
    return _Failing("grow", "step", 0)


def starving() -> nn.Module:
    """Build a model that allocates 8 GiB in a cgroup with a lower limit, so that the kernel ends its rank."""
    # The rank joins the cgroup itself. The variable carries the name of the cgroup from the test.
    (Path(os.environ["DMLS_RAY_TEST_CGROUP"]) / "cgroup.procs").write_text(str(os.getpid()))
    return growing()


class _Slow(_Failing):
    def forward(self, images: Tensor) -> Tensor:
        if Path("slow").exists():
            time.sleep(2)
        return super().forward(images)


def slow_on_request() -> nn.Module:
    """Build a model whose passes take 2 s each from the moment at which there is a file `slow`."""
    return _Slow("loop", "never", 0)


class _Broken(Dataset[tuple[torch.Tensor, int]]):
    classes = 4

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == 31 and torch.utils.data.get_worker_info() is not None:
            raise OSError(f"sample {index} is broken")
        return torch.zeros(1, 8, 8), index % 4


def broken_data(split: str) -> Dataset[tuple[torch.Tensor, int]]:
    """Data set whose last sample cannot be read in a worker process of the loader."""
    return _Broken()


def steady() -> nn.Module:
    """Build the same model without a failure."""
    return _Failing("loop", "never", 0)


def user_function(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, float]:
    """Training function of a user; its last rank fails in the way that `how` names."""
    torch.randn(())
    emit({"train_loss": 1.0})
    if rank.rank == rank.world_size - 1:
        if config["how"] == "raise":
            raise ArithmeticError("a fault of the user")
        if config["how"] == "oom":
            raise MemoryError("cannot allocate 8 GiB")
        if config["how"] == "uneven" and rank.world_size > 1:
            dist.all_reduce(torch.ones(3))
        if config["how"] in HOW:
            HOW[config["how"]]()
    if rank.world_size > 1:
        dist.barrier()
    return {"drawn": float(torch.rand(())), "test_loss": float("nan") if config["how"] == "nothing-finite" else 1.0}


def leave_behind(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Change the process for good, and crash if that is asked for; a changed process is an error."""
    assert torch.get_default_dtype() is torch.float32, "an earlier run had this process"
    torch.set_default_dtype(torch.float64)
    threading.Thread(target=time.sleep, args=(600,)).start()
    if config["crashes"]:
        signal.raise_signal(signal.SIGSEGV)
    return {"parent": os.getppid()}
