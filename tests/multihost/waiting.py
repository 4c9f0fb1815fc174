"""Training functions whose runs wait for a sign, so that a test knows what is under way when it takes a machine away."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dmls_ray.rank import Emit, RankInfo

STEP_S = 0.02


def together(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """All-reduces for `config["seconds"]`; at repeat `config["marked"]`, if any, rank 0 leaves a mark when it has begun
    and takes ten times as long.

    The marks are files in the folder that the environment variable of `mark` names: the test's.
    """
    seconds = config["seconds"]
    marked = config.get("marks", "")
    number = config["seed"] // 10_000
    if marked and number == 0:
        seconds *= 10
        if rank.rank == 0:
            (Path(marked) / f"began-{config['machines']}-{os.getpid()}").touch()
    total = torch.zeros(1)
    for _ in range(int(seconds / STEP_S)):
        values = torch.ones(1)
        if rank.world_size > 1:
            dist.all_reduce(values)
        total += values
        emit({"kind": "progress"})
        time.sleep(STEP_S)
    emit({"total": float(total)})
    return {"total": float(total)}
