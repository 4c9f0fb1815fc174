"""Turn whatever a training function does into a result: an exception is an outcome, not a crash."""

from __future__ import annotations

import traceback
from typing import Any

import torch
import torch.distributed as dist

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.outcome import Outcome
from dmls_ray.training.rank import Emit, RankInfo, TrainFunction
from dmls_ray.util.errors import DivergedError, UnavailableError
from dmls_ray.util.text import first_line


def run_guarded(train: TrainFunction, config: RuntimeConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """The training function's result with its `outcome`, or a failure's description."""
    try:
        return {"outcome": Outcome.OK.value, "rank": rank.rank, **train(config, rank, emit)}
    except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - whatever it is, it ends this run alone
        return failure(error, rank)


# What PyTorch says with a plain RuntimeError: its CPU allocator, cuBLAS and cuDNN; and gloo.
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "ALLOC_FAILED")
_DISCONNECTED = (
    "Connection closed by peer", "Connection reset by peer", "Connection timed out", "Connection refused",
    "Broken pipe", "No route to host", "connectFullMesh failed",
)  # fmt: skip
_PEER_IS_GONE = ("gloo", *_DISCONNECTED)


def failure(error: BaseException, rank: RankInfo) -> dict[str, Any]:
    """The result of a rank that raised: `outcome`, `reason` in one line, and `traceback`.

    `symptom` tells whether it only reports that another rank is gone, `disconnected` whether that is because what
    connects them is, `device_lost` whether the process can use its GPU no more.
    """
    outcome = Outcome.ERROR
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or _says(error, _OUT_OF_MEMORY):
        outcome = Outcome.OOM
    elif isinstance(error, DivergedError):
        outcome = Outcome.DIVERGED
    elif isinstance(error, UnavailableError):
        outcome = Outcome.SKIPPED
    return {
        "outcome": outcome.value,
        "reason": f"{type(error).__name__}: {first_line(error, empty='')}".rstrip(": "),
        "traceback": "".join(traceback.format_exception(error)),
        # After an assertion on the device, say, every further call in this process fails.
        "device_lost": outcome is Outcome.ERROR and _says(error, ("CUDA error",)),
        "symptom": isinstance(error, dist.DistError) or _says(error, _PEER_IS_GONE),
        "disconnected": isinstance(error, dist.DistNetworkError) or _says(error, _DISCONNECTED),
        "rank": rank.rank,
        "machine": rank.machine,
        "device": rank.device,
    }


def _says(error: BaseException, words: tuple[str, ...]) -> bool:
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)
