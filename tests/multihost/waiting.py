"""Training functions that wait for the test, so that it knows what is under way when it takes a machine away."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dmls_ray.training.rank import Emit, RankInfo

STEP_S = 0.02


def together(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """All-reduces, over and over: a run of repeat 0 or 1 on two machines, and of repeat 2 on one, until there is a file
    `go-<repeat>` in the folder `config["marks"]`; any other once. Rank 0 of a run that waits leaves a file
    `began-<repeat>` there.
    """
    folder, repeat = Path(config["marks"]), config["seed"] // 10_000
    waits = config["machines"] == (2 if repeat < 2 else 1)
    if waits and rank.rank == 0:
        (folder / f"began-{repeat}").touch()
    rounds = 0.0
    over = torch.zeros(1)
    while not over:
        over = torch.tensor([float(rank.rank == 0 and (not waits or (folder / f"go-{repeat}").exists()))])
        if rank.world_size > 1:
            dist.all_reduce(over)
        rounds += 1
        emit({"kind": "progress"})
        time.sleep(STEP_S)
    return {"ranks": rank.world_size, "rounds": rounds}


def alone(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Waits for a file `go` in the folder `config["marks"]`, and leaves one that tells who began where."""
    folder = Path(config["marks"])
    (folder / f"began-{config['number']}-{rank.machine}").touch()
    while not (folder / "go").exists():
        emit({"kind": "progress"})
        time.sleep(STEP_S)
    return {"number": config["number"]}
