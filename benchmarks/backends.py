"""Which collectives and number formats each communication library supports on two ranks.

yes: the result is right; no: the library refuses; a wrong result is shown. A library that PyTorch was built without,
or that has no device here, is reported as not available.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor

from dmls_ray.analysis.export.text_tables import markdown
from dmls_ray.launchers.base import infeasible_reason
from dmls_ray.launchers.command import run_command
from dmls_ray.launchers.spawn import run_spawned
from dmls_ray.records.provenance import describe_machine, describe_versions
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.classification.config import TrialConfig

FORMATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8)


def _start_value(rank: int, device: str, dtype: torch.dtype) -> Tensor:
    return torch.tensor([rank + 1, 3 * rank + 1], device=device).to(dtype)


def _reduced(op: Any, rank: int, device: str, dtype: torch.dtype) -> tuple[Tensor, list[float]]:
    tensor = _start_value(rank, device, dtype)
    dist.all_reduce(tensor, op=op)
    return tensor, [3, 5] if op == dist.ReduceOp.SUM else [2, 4]


def _averaged(rank: int, device: str, dtype: torch.dtype) -> tuple[Tensor, list[float]]:
    tensor = _start_value(rank, device, dtype)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    return tensor, [1.5, 2.5]


def _broadcast(rank: int, device: str, dtype: torch.dtype) -> tuple[Tensor, list[float]]:
    tensor = _start_value(rank, device, dtype)
    dist.broadcast(tensor, 1)
    return tensor, [2, 4]


def _gathered(rank: int, device: str, dtype: torch.dtype) -> tuple[Tensor, list[float]]:
    parts = [torch.empty(2, dtype=dtype, device=device) for _ in range(2)]
    dist.all_gather(parts, _start_value(rank, device, dtype))
    return torch.cat(parts), [1, 1, 2, 4]


def _scattered(rank: int, device: str, dtype: torch.dtype) -> tuple[Tensor, list[float]]:
    shard = torch.empty(1, dtype=dtype, device=device)
    dist.reduce_scatter_tensor(shard, _start_value(rank, device, dtype))
    return shard, [[3.0], [5.0]][rank]


def _exchanged(rank: int, device: str, dtype: torch.dtype) -> tuple[Tensor, list[float]]:
    theirs = torch.empty(2, dtype=dtype, device=device)
    dist.all_to_all_single(theirs, _start_value(rank, device, dtype))
    return theirs, [[1.0, 2.0], [1.0, 4.0]][rank]


COLLECTIVES: dict[str, Callable[[int, str, torch.dtype], tuple[Tensor, list[float]]]] = {
    "all_reduce sum": functools.partial(_reduced, dist.ReduceOp.SUM),
    "all_reduce max": functools.partial(_reduced, dist.ReduceOp.MAX),
    "all_reduce avg": _averaged,
    "broadcast": _broadcast,
    "all_gather": _gathered,
    "reduce_scatter": _scattered,
    "all_to_all": _exchanged,
}
"""Name -> what this rank has afterwards, and what it should have; ranks 0 and 1 begin with [1, 1] and [2, 4]."""


def probe(config: TrialConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """A training function: tries every collective with every format."""
    answers: dict[str, dict[str, str]] = {}
    for name, collective in COLLECTIVES.items():
        for dtype in FORMATS:
            try:
                result, expected = collective(rank.rank, rank.device, dtype)
                right = result.double().tolist() == expected or (name.endswith("avg") and not dtype.is_floating_point)
                answer = "yes" if right else f"wrong: {result.tolist()}"
            except (RuntimeError, ValueError, TypeError):
                answer = "no"
            answers.setdefault(name, {})[str(dtype).removeprefix("torch.")] = answer
    return {"run": {"returned": {"answers": answers}}}


def main() -> None:
    """Probe and print."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    available = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available(), "ucc": dist.is_ucc_available()}
    for backend, built_in in available.items():
        devices = dist.Backend.backend_capability.get(backend, [])
        if not built_in:
            print(f"{backend}: not available; this PyTorch was built without it.\n")
            continue
        if "cpu" not in devices and torch.cuda.device_count() < 2:
            print(f"{backend}: not available; it is for {', '.join(devices)}, and 2 such devices are needed here.\n")
            continue
        device = "cpu" if "cpu" in devices else "cuda"
        config = TrialConfig(batch_per_rank=1, world_size=2, backend=backend, device=device)  # type: ignore[arg-type]
        (first, _) = run_spawned(config, train=probe)
        if first.outcome != "ok":
            raise SystemExit(first.traceback)
        print(f"{backend}, for {', '.join(devices)}; tried on {device}:\n")
        print(markdown(pd.DataFrame(first.run["returned"]["answers"]).T.reset_index()) + "\n")
    config = TrialConfig(batch_per_rank=1, world_size=2, backend="mpi", launcher="mpirun", device="cpu")
    if reason := infeasible_reason(config):
        print(f"mpi: not available; {reason}\n")
    else:
        (first, _) = run_command(
            config, train="backends:probe", artifacts=None, path=[str(Path(__file__).parent)], cwd=".",
            emit=lambda event: None, end_reason=lambda: "",
        )  # fmt: skip
        if first.outcome != "ok":
            raise SystemExit(first.traceback)
        whose = "PyTorch's" if dist.is_mpi_available() else "dmls_ray's, over mpi4py"
        print(f"mpi, {whose}, under mpirun; tried on cpu:\n")
        print(markdown(pd.DataFrame(first.run["returned"]["answers"]).T.reset_index()) + "\n")
    versions = describe_versions()
    print(f"{describe_machine()['cpu']}; torch {versions['torch']}")


if __name__ == "__main__":
    main()
