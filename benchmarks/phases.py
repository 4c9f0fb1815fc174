"""What the marks of step phases cost, and how far the phases are from the time of a step.

Every second step has marks, so that drift affects both kinds equally; a ratio is of the means of both kinds in one
epoch. A mark that is off is a call that returns at once.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from pathlib import Path

from dmls_ray.records.run_events import RankResult
from tests.run_results import returning

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import machine, print_table, returned_by, with_interval
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.step_phases import StepPhases
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.train import rank_trainer

_MODELS = (("digits_convnet", "digits"), ("mnist_convnet", "synthetic:shape=1x28x28,train=2080,test=16"))
"""Both have an odd number of steps in an epoch, on one rank and on two. So a step that makes the images of several has
marks in one epoch and none in the next."""


def epochs(config: TrialConfig, rank: RankInfo, emit: Emit, *, count: int) -> RankResult:
    """A training function: the mean step of each epoch with marks and without, and the phases of the former."""
    trial = rank_trainer(config, rank)
    marks = trial.timer.phases = StepPhases(trial.device, every=2)
    means: dict[str, list[float]] = {"with": [], "without": []}
    first = 0
    for number in range(count + 1):
        trial.timer.step_ms.clear()
        trial._epoch(1)
        steps = trial.timer.step_ms
        if number:  # the first epoch warms up
            means["with"].append(statistics.fmean(steps[first % 2 :: 2]))
            means["without"].append(statistics.fmean(steps[1 - first % 2 :: 2]))
            first += len(steps)
        else:
            marks = trial.timer.phases = StepPhases(trial.device, every=2)
    step_ms = statistics.fmean(means["with"])
    return returning({**means, "step_ms": step_ms, "phases": marks.mean_ms()})


def row(config: TrialConfig, count: int) -> dict[str, str]:
    """The cost for one configuration."""
    ranks = returned_by(config, functools.partial(epochs, count=count))
    ratios = [marked / bare for marked, bare in zip(ranks[0]["with"], ranks[0]["without"], strict=True)]
    shares = [sum(rank["phases"].values()) / rank["step_ms"] for rank in ranks]
    return {
        "model": config.model,
        "ranks": str(config.world_size),
        "ms a step": f"{ranks[0]['step_ms']:.2f}",
        "with / without [95%]": with_interval(ratios, digits=4),
        "phases / step": ", ".join(f"{share:.4f}" for share in shares),
        "n": str(count),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=1000, help="epochs of each row (default: 1000)")
    args = parser.parse_args()
    rows = []
    for model, dataset in _MODELS:
        for ranks in (1, 2):
            config = TrialConfig(
                model=model, dataset=dataset, batch_per_rank=32, world_size=ranks, epochs=1, warmup_steps=0,
                device="cpu",
            )  # fmt: skip
            rows.append(row(config, args.epochs))
    print_table(rows)
    print(f"\n{machine('torch')}; batch 32; rank 0 is timed")


if __name__ == "__main__":
    main()
