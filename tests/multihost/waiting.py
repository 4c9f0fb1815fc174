"""Training functions that wait for a file of the test, which thus knows which runs lose their machine; and data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import Dataset, TensorDataset

from dmls_ray.training.rank import Emit, RankInfo

STEP_S = 0.02


def together(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """All-reduce until the file `go-<repeat>` exists in the folder `config["marks"]`.

    Only some runs wait: repeats 0 and 1 on two machines, and repeat 2 on one machine; other runs all-reduce once. Rank
    0 of a run that waits creates the file `began-<repeat>` in the folder.
    """
    folder, repeat = Path(config["marks"]), config["seed"] // 10_000
    waits = config["machines"] == (2 if repeat < 2 else 1)
    if waits and rank.rank == 0:
        (folder / f"began-{repeat}").touch()
    rounds = 0.0
    done = torch.zeros(1)
    while not done:
        done = torch.tensor([float(rank.rank == 0 and (not waits or (folder / f"go-{repeat}").exists()))])
        if rank.world_size > 1:
            dist.all_reduce(done)
        rounds += 1
        emit({"kind": "progress"})
        time.sleep(STEP_S)
    return {"ranks": rank.world_size, "rounds": rounds}


def alone(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Create a file that names the run and its machine in `config["marks"]`, then wait for the file `go` there."""
    folder = Path(config["marks"])
    (folder / f"began-{config['number']}-{rank.machine}").touch()
    while not (folder / "go").exists():
        emit({"kind": "progress"})
        time.sleep(STEP_S)
    return {"number": config["number"]}


def in_turn(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Create the file `began-<repeat>` in the folder `config["marks"]`, then wait for the file `go-<repeat>` there."""
    folder, repeat = Path(config["marks"]), config["seed"] // 10_000
    (folder / f"began-{repeat}").touch()
    while not (folder / f"go-{repeat}").exists():
        emit({"kind": "progress"})
        time.sleep(STEP_S)
    return {"repeat": repeat}


def data_of_the_machine(split: str) -> Dataset[Any]:
    """64 images, on a machine that has the file /tmp/data."""
    if not Path("/tmp/data").exists():
        raise OSError("this machine has no data")
    return TensorDataset(torch.zeros(64, 1, 8, 8), torch.arange(64) % 4)
