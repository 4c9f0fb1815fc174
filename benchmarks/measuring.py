"""What the instruments cost, and how far they are from independent measurements.

communication    exposed_comm_ms, the least of two ranks, against the time of a step less that of the same step under
                 no_sync, which reduces nothing
instruments      milliseconds of a run that instruments take and no time contains, against its total_s
memory           what a batch of 256 needs more than one of 32, by the numbers of runs in a process that served other
                 runs, against the peaks of fresh processes that train in a bare loop

observer         microseconds of a step of a script or a function, observed and bare, in alternating pairs

Throughput against a bare loop is measured by throughput.py, the marks of step phases by phases.py.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from dmls_ray.records.run_events import RankResult
from tests.run_results import returning

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import machine, print_table, returned_by, run_ranks, with_range
from dmls_ray.training.marks import synchronize
from dmls_ray.training.memory import MIB
from dmls_ray.training.observed.observer import ObservedSteps
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.rank_meter import RankMeter
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.model_builder import build_model
from dmls_ray.workloads.classification.train import rank_trainer
from tests.new_processes import run_inline

_MODELS = (("mnist_convnet", 2048), ("convnet", 512))
"""Models, and the images of an epoch."""
_SMALL, _LARGE = 32, 256
"""Batches whose memory is compared."""


def row(
    config: TrialConfig, what: str, measured: Sequence[float], independent: Sequence[float], digits: int = 2
) -> dict[str, str]:
    """A row of the output: what was measured, by the instruments and independently of them."""
    cells = {
        "what": f"{config.model}, batch {config.batch_per_rank}, world_size {config.world_size}: {what}",
        "measured": with_range(measured, digits),
        "independent": with_range(independent, digits),
    }
    if any(independent):
        cells["ratio"] = f"{statistics.median(measured) / statistics.median(independent):.3f}"
    return cells


# --- communication ----------------------------------------------------------------------------------------------------


def communication(config: TrialConfig, rank: RankInfo, emit: Emit, *, rounds: int) -> RankResult:
    """A training function: milliseconds of a step with and without communication, and the timers of the former."""
    trial = rank_trainer(config, rank)
    batches = [batch for _, batch in trial.task.loader.train(0)][:-1]
    step = trial.optimizer_step
    ms: dict[str, list[float]] = {"reducing": [], "silent": []}
    for number in range(rounds + 1):
        if number == 1:  # the first round warms up
            trial.ddp_model.count_from_here()
        for name in ("reducing", "silent") if number % 2 else ("silent", "reducing"):
            dist.barrier()
            began = time.perf_counter()
            for images, labels in batches:
                with trial.ddp_model.reducing(name == "reducing"):
                    F.cross_entropy(trial.ddp_model.forward(images), labels).backward()
                step.step()
            synchronize(trial.device)
            if number:
                ms[name].append((time.perf_counter() - began) / len(batches) * 1e3)
    return returning({"ms": ms, "timers": trial.ddp_model.communication()})


def communication_row(config: TrialConfig, rounds: int) -> dict[str, str]:
    """Exposed communication of two ranks."""
    ranks = returned_by(config, functools.partial(communication, rounds=rounds))

    # A step is over when it is over on the slowest rank.
    silent = [max(times) for times in zip(*(rank["ms"]["silent"] for rank in ranks), strict=True)]
    reducing = [max(times) for times in zip(*(rank["ms"]["reducing"] for rank in ranks), strict=True)]
    differences = [with_ - without for with_, without in zip(reducing, silent, strict=True)]
    exposed = min(rank["timers"]["exposed_comm_ms"] for rank in ranks)
    return row(config, "exposed communication, ms a step", [exposed], differences)


# --- instruments ------------------------------------------------------------------------------------------------------


def instruments_row(config: TrialConfig, rounds: int) -> dict[str, str]:
    """What all instruments take: the link between ranks, checks of code and data, the memory step, the evaluation on
    training samples.
    """
    instruments, totals = [], []
    for _ in range(rounds):
        ranks = [result.values for result in run_ranks(config)]
        instruments.append(max(rank["instruments_s"] for rank in ranks) * 1e3)
        totals.append(max(rank["total_s"] for rank in ranks) * 1e3)
    return row(config, "ms of instruments in a run, and total_s", instruments, totals, digits=0)


# --- observer ---------------------------------------------------------------------------------------------------------

_OBSERVED_STEPS = 400


def observer_row(pairs: int) -> dict[str, str]:
    """What the observer of scripts and functions adds to a step."""
    _loop_us(observed=True)  # loads libraries
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(pairs):
        for observed in (True, False) if number % 2 else (False, True):
            times[observed].append(_loop_us(observed=observed))
    added = [with_ - bare for with_, bare in zip(times[True], times[False], strict=True)]
    what = f"a step of one layer with a loader: us that the observer adds, and the bare step (n={pairs} pairs)"
    return {"what": what, "measured": with_range(added, 1), "independent": with_range(times[False], 1)}


def _loop_us(*, observed: bool) -> float:
    """Microseconds of a step of a small loop, after its warm-up."""
    loader = DataLoader(TensorDataset(torch.randn(32 * (_OBSERVED_STEPS + 20), 16)), 32)
    steps = ObservedSteps(RankMeter(RankInfo()), lambda event: None)
    began = 0.0
    with steps.counted() if observed else nullcontext():
        model = torch.nn.Linear(16, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for number, (batch,) in enumerate(loader):
            if number == 20:
                began = time.perf_counter()
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        return (time.perf_counter() - began) / _OBSERVED_STEPS * 1e6


def _in_fresh_process(function: Callable[..., float], *arguments: object) -> float:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


# --- memory of a batch ------------------------------------------------------------------------------------------------


def memory_rows(config: TrialConfig, rounds: int) -> list[dict[str, str]]:
    """What the larger batch needs more, by each number of a run."""
    small, large = (config.replace(batch_per_rank=batch) for batch in (_SMALL, _LARGE))
    more: dict[str, list[float]] = {"tensor_mem_mib": [], "host_mem_mib": []}
    fresh: list[float] = []
    run_inline(large)  # the first run loads libraries
    for _ in range(rounds):
        values_small, values_large = (run_inline(each).values for each in (small, large))
        for name, differences in more.items():
            differences.append(values_large[name] - values_small[name])
        fresh.append(_in_fresh_process(_bare_peak_mib, large) - _in_fresh_process(_bare_peak_mib, small))
    what = f"MiB more than at batch {_SMALL}, against fresh processes"
    return [row(large, f"{name}, {what}", differences, fresh) for name, differences in more.items()]


def _bare_peak_mib(config: TrialConfig) -> float:
    """What some steps of a bare loop add to the peak resident set of this process (Linux)."""
    torch.set_num_threads(1)
    model = build_model(config, (3, 32, 32), 10)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step(batch: int) -> None:
        images, labels = torch.randn(batch, 3, 32, 32), torch.zeros(batch, dtype=torch.int64)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    step(1)  # loads libraries
    Path("/proc/self/clear_refs").write_text("5")
    before = psutil.Process().memory_info().rss
    for _ in range(3):
        step(config.batch_per_rank or 0)
    (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return (int(peak) * 1024 - before) / MIB


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default: 7)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    rows = [observer_row(max(rounds, 15))]
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("DMLS_RAY_CACHE", cache)
        for model, images in _MODELS:
            single = TrialConfig(
                model=model,
                dataset=f"synthetic:shape=3x32x32,train={images},test=16",
                batch_per_rank=_SMALL,
                epochs=1,
                warmup_steps=0,
                device="cpu",
            )
            both = single.replace(world_size=2)
            rows.append(communication_row(both, rounds))
            rows.append(instruments_row(single, rounds))
            rows.append(instruments_row(both, rounds))
            rows += memory_rows(single, rounds)
    print_table(rows)
    print(f"\n{machine('torch')}; n={rounds} rounds")


if __name__ == "__main__":
    main()
