"""What the instruments cost, and how far they are from independent measurements.

communication    see measuring_steps.py, and throughput
utilization      seconds of an epoch with the sampler, against the same without, in turn; and processor time a look
memory           see measuring_memory.py
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring_memory import memory_rows, meter_ms
from benchmarks.measuring_steps import allocator_row, communication_row, instruments_row, throughput_row
from dmls_ray.analysis.export.text_tables import markdown
from dmls_ray.launchers.spawn import run_spawned
from dmls_ray.records.provenance import describe_machine, describe_versions
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.utilization import PERIOD_S, UtilizationSampler
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.train import rank_trainer


def utilization(config: TrialConfig, rank: RankInfo, emit: Emit, *, rounds: int) -> dict[str, Any]:
    """A training function: seconds of an epoch with the sampler and without."""
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    for number in range(rounds + 1):
        for name in ("with", "without") if number % 2 else ("without", "with"):
            trial = rank_trainer(config, rank)
            with UtilizationSampler(trial.device) if name == "with" else nullcontext():
                trial.run(lambda event: None)
            if number:
                seconds[name].append(trial.epochs[0].metrics["train_s"] or 0.0)
    return {"run": {"returned": {"s": seconds}}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default: 7)")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("DMLS_RAY_CACHE", cache)
        for model, images, batch in (("mnist_convnet", 2048, 32), ("convnet", 512, 32)):
            config = TrialConfig(
                model=model,
                dataset=f"synthetic:shape=3x32x32,train={images},test=16",
                batch_per_rank=batch,
                world_size=2,
                epochs=1,
                warmup_steps=0,
                device="cpu",
            )
            rows.append(communication_row(config, args.rounds))
            rows.append(communication_row(config.replace(zero_redundancy=True), args.rounds))
            alone = config.replace(world_size=1)
            rows += [instruments_row(ranks, args.rounds) for ranks in (alone, config)]
            rows.append(throughput_row(alone))
            rows.append(allocator_row(alone, args.rounds))
            rows.append(_utilization_row(alone, args.rounds))
            rows += memory_rows(alone, args.rounds)
    sample_us = _sample_us()
    machine, versions = describe_machine(), describe_versions()
    print(markdown(pd.DataFrame(rows)))
    print(f"\n{machine['cpu']}, {machine['cores']} cores; torch {versions['torch']}; n={args.rounds} rounds")
    share = sample_us / 1e6 / PERIOD_S
    cost = f"{sample_us:.0f} us of processor time (95th percentile), {share:.3%} of a core"
    print(f"One sample of utilization takes {cost}.")
    start_ms, epoch_ms = meter_ms()
    print(f"The memory meter takes {start_ms:.2f} ms at the start of a run and {epoch_ms:.2f} ms in each epoch.")


def _sample_us() -> float:
    """Microseconds of processor time per sample, at the 95th percentile: the noise of an epoch hides them."""
    times = []
    with UtilizationSampler(torch.device("cpu")) as sampler:
        for _ in range(300):
            began = time.thread_time()
            sampler._sample()
            times.append((time.thread_time() - began) * 1e6)
            time.sleep(0.005)
    return statistics.quantiles(times, n=20)[-1]


def _run(config: TrialConfig, train: Any) -> dict[str, Any]:
    first = run_spawned(config, train=train)[0]
    if first.outcome != "ok":
        raise SystemExit(first.traceback)
    return dict(first.run["returned"])


def _utilization_row(config: TrialConfig, rounds: int) -> dict[str, str]:
    seconds = _run(config, functools.partial(utilization, rounds=rounds))["s"]
    ratios = [with_ / without for with_, without in zip(seconds["with"], seconds["without"], strict=True)]
    return {
        "what": f"{config.model}, 1 rank: seconds of an epoch with the utilization sampler and without",
        "by timers / with": f"{statistics.median(seconds['with']):.3f}",
        "by difference / without": f"{statistics.median(seconds['without']):.3f}",
        "ratio": f"{statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]",
    }


if __name__ == "__main__":
    main()
