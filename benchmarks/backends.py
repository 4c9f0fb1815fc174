"""Which collectives and number formats each communication library supports on two ranks.

yes: the result is right; no: the library refuses; a wrong result is shown. A library that PyTorch was built without,
or that has no device here, is reported as not available.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.run_results import returning

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import check, machine, print_table, run_ranks
from dmls_ray.launchers.base import infeasible_reason
from dmls_ray.launchers.command import run_command
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.classification.config import TrialConfig

FORMATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8)

Collective = Callable[[Tensor], Tensor]
"""What this rank has after a collective that it begins with a tensor."""


def _all_reduce(op: Any) -> Collective:
    def collective(start: Tensor) -> Tensor:
        dist.all_reduce(start, op=op)
        return start

    return collective


def _broadcast(start: Tensor) -> Tensor:
    dist.broadcast(start, 1)
    return start


def _all_gather(start: Tensor) -> Tensor:
    parts = [torch.empty_like(start) for _ in range(2)]
    dist.all_gather(parts, start)
    return torch.cat(parts)


def _reduce_scatter(start: Tensor) -> Tensor:
    shard = torch.empty_like(start[:1])
    dist.reduce_scatter_tensor(shard, start)
    return shard


def _all_to_all(start: Tensor) -> Tensor:
    received = torch.empty_like(start)
    dist.all_to_all_single(received, start)
    return received


COLLECTIVES: dict[str, tuple[Collective, tuple[list[float], list[float]]]] = {
    "all_reduce sum": (_all_reduce(dist.ReduceOp.SUM), ([3, 5], [3, 5])),
    "all_reduce max": (_all_reduce(dist.ReduceOp.MAX), ([2, 4], [2, 4])),
    "all_reduce avg": (_all_reduce(dist.ReduceOp.AVG), ([1.5, 2.5], [1.5, 2.5])),
    "broadcast": (_broadcast, ([2, 4], [2, 4])),
    "all_gather": (_all_gather, ([1, 1, 2, 4], [1, 1, 2, 4])),
    "reduce_scatter": (_reduce_scatter, ([3], [5])),
    "all_to_all": (_all_to_all, ([1, 2], [1, 4])),
}
"""Name -> the collective, and what ranks 0 and 1, which begin with [1, 1] and [2, 4], should have afterwards."""


def probe(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """A training function: tries every collective with every format."""
    answers: dict[str, dict[str, str]] = {}
    for name, (collective, expected) in COLLECTIVES.items():
        for dtype in FORMATS:
            start = torch.tensor([rank.rank + 1, 3 * rank.rank + 1], device=rank.device).to(dtype)
            try:
                result = collective(start).double().tolist()
            except (RuntimeError, ValueError, TypeError):
                answer = "no"
            else:
                # The mean of whole numbers is rounded in a way that no library promises.
                is_right = result == expected[rank.rank] or (name.endswith("avg") and not dtype.is_floating_point)
                answer = "yes" if is_right else f"wrong: {result}"
            answers.setdefault(name, {})[str(dtype).removeprefix("torch.")] = answer
    return returning({"answers": answers})


def print_answers(title: str, result: RankResult) -> None:
    """Print the table of rank 0."""
    check([result])
    print(f"{title}:\n")
    print_table([{"collective": name, **row} for name, row in result.run.reported["returned"]["answers"].items()])
    print()


def main() -> None:
    """Probe and print."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    available = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available(), "ucc": dist.is_ucc_available()}
    for backend, is_built_in in available.items():
        devices = dist.Backend.backend_capability.get(backend, [])
        device = "cpu" if "cpu" in devices else "cuda"
        if not is_built_in:
            print(f"{backend}: not available; this PyTorch was built without it.\n")
        elif device == "cuda" and torch.cuda.device_count() < 2:
            print(f"{backend}: not available; it is for {', '.join(devices)}, and 2 such devices are needed here.\n")
        else:
            config = TrialConfig(batch_per_rank=1, world_size=2, backend=backend, device=device)  # type: ignore[arg-type]
            print_answers(f"{backend}, for {', '.join(devices)}; tried on {device}", run_ranks(config, probe)[0])
    config = TrialConfig(batch_per_rank=1, world_size=2, backend="mpi", launcher="mpirun", device="cpu")
    if reason := infeasible_reason(config):
        print(f"mpi: not available; {reason}\n")
    else:
        (first, _) = run_command(
            config, train="backends:probe", artifacts=None, path=[str(Path(__file__).parent)], cwd=".",
            emit=lambda event: None, end_reason=lambda: "",
        )  # fmt: skip
        whose = "PyTorch's" if dist.is_mpi_available() else "dmls_ray's, over mpi4py"
        print_answers(f"mpi, {whose}, under mpirun; tried on cpu", first)
    print(machine("torch"))


if __name__ == "__main__":
    main()
