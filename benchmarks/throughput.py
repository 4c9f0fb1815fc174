"""Images per second of training: the reports' loop, dmls_ray, the bare limit and other trainers, in one process.

    plain        the reports' loop: PIL, ToTensor and Normalize in a DataLoader with 2 workers, .item() every step
    dataloader   dmls_ray with --loader dataloader
    resident     dmls_ray with --loader resident
    bare         the limit: forward, backward and fused step on tensors in memory, and nothing else
    accelerate, lightning    the same model under Hugging Face accelerate and under Lightning, where they are installed

All train the same model on the same images (scikit-learn's digits as JPEGs of the model's size) with Adam and one
thread per rank. Each round runs all ways one after the other, in a rotating order; ratios are taken within a round.
Processes differ among themselves by more than chance, so each process is one value: the geometric mean over its
rounds. Every setting gets processes until each ratio is known to --within (half the width of its 95% interval), or
until --minutes are spent. The output has the medians of images/s, and each ratio with its interval and the number of
processes.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.util
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from dmls_ray.records.run_events import RankResult
from tests.run_results import returning

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import machine, print_table, returned_by, with_interval
from benchmarks.throughput_ways import IMAGES, PEERS, SHAPES, WAYS
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.training.memory import release_free_pages
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.classification.config import TrialConfig

COMPARED = (
    ("resident", "bare"),
    ("resident", "plain"),
    ("dataloader", "plain"),
    ("resident", "accelerate"),
    ("resident", "lightning"),
)
"""Ways whose speeds the output compares."""


def rounds(config: TrialConfig, rank: RankInfo, emit: Emit, *, count: int, ways: list[str]) -> RankResult:
    """A training function: all ways, round by round; returns the seconds of each."""
    torch.set_num_threads(config.threads_per_rank)
    # A spawned process would spawn its loader workers as well, which takes seconds and measures nothing; forked off a
    # process with threads, they may hang.
    multiprocessing.set_start_method("forkserver", force=True)
    multiprocessing.set_forkserver_preload(["torch", "torchvision"])
    seconds_by_way: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(count + 1):
        turn = number % len(ways)
        for name in ways[turn:] + ways[:turn]:
            # No way pays for what another left, or gets it for nothing: a run begins with its free pages given back.
            gc.collect()
            release_free_pages()
            seconds = (WAYS | PEERS)[name](config, rank)
            if number:  # the first round warms up
                seconds_by_way[name].append(seconds)
    return returning({"seconds": seconds_by_way})


def measure(config: TrialConfig, count: int, ways: list[str]) -> dict[str, list[float]]:
    """Seconds by way and round; of several ranks, the slowest."""
    ranks = returned_by(config, functools.partial(rounds, count=count, ways=ways))
    slowest = {}
    for name in ways:
        of_ranks = [rank["seconds"][name] for rank in ranks]
        slowest[name] = [max(values) for values in zip(*of_ranks, strict=True)]
    return slowest


@dataclass
class Setting:
    """A configuration, the ways that train it, and what the processes so far measured."""

    config: TrialConfig
    ways: list[str]
    processes: list[dict[str, list[float]]] = field(default_factory=list)
    """Seconds by way and round, of each process."""

    def ratios(self) -> dict[str, list[float]]:
        """Speed of one way over that of another, by `one / other`; a value per process."""
        values = {}
        for one, other in COMPARED:
            if one in self.ways and other in self.ways:
                values[f"{one} / {other}"] = [_speed_up(process[one], process[other]) for process in self.processes]
        return values

    def is_known(self, within: float) -> bool:
        """Whether half the width of each ratio's interval, as a factor, is at most this."""
        if not self.processes:
            return False
        for ratios in self.ratios().values():
            mean = estimate(ratios, "ratio")
            if mean.low is None or mean.high is None or (mean.high / mean.low) ** 0.5 > 1 + within:
                return False
        return True

    def row(self) -> dict[str, str]:
        """As a row of the output."""
        config = self.config
        row = {name: str(getattr(config, name)) for name in ("model", "batch_per_rank", "world_size")}
        for name in self.ways:
            seconds = [second for process in self.processes for second in process[name]]
            row[f"{name} images/s"] = f"{IMAGES[config.model] / statistics.median(seconds):,.0f}"
        row |= {name: with_interval(ratios) for name, ratios in self.ratios().items()}
        return {**row, "n": str(len(self.processes))}


def _speed_up(seconds: list[float], base: list[float]) -> float:
    """Speed relative to a base, round by round."""
    return statistics.geometric_mean(b / a for a, b in zip(seconds, base, strict=True))


def measure_until_known(measured: list[Setting], within: float, seconds: float, count: int) -> None:
    """Add processes of `count` rounds until all ratios are known, or no time is left; each setting has one at least."""
    began = time.monotonic()
    # Settings take turns, so that each has processes at different times of the machine.
    while left := [setting for setting in measured if not setting.is_known(within)]:
        for setting in left:
            spent = time.monotonic() - began
            if setting.processes and spent > seconds:
                return
            setting.processes.append(measure(setting.config, count, setting.ways))
            shown = ", ".join(f"{name} {value}" for name, value in setting.row().items())
            print(f"[{spent / 60:.1f} min] {shown}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--within", type=float, default=0.03, help="how well each ratio is to be known (default: 0.03)")
    parser.add_argument("--minutes", type=float, default=30, help="begin no process after these (default: 30)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of a process that count (default: 5)")
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--batches", nargs="+", type=int, default=[32, 256])
    parser.add_argument("--world-sizes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--ways", nargs="+", choices=[*WAYS, *PEERS], help="only these ways (default: all there are)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="fp32", help="of ours and of the configuration (default: fp32)")
    args = parser.parse_args()
    peers = [name for name in PEERS if importlib.util.find_spec(name)]
    measured = []
    for model, batch, world_size in itertools.product(args.models, args.batches, args.world_sizes):
        config = TrialConfig(
            model=model, dataset="benchmarks.throughput_ways:pictures", data_dir=model, batch_per_rank=batch,
            world_size=world_size, epochs=1, device=args.device, precision=args.precision,
        )  # fmt: skip
        possible = [*WAYS, *peers] if world_size == 1 else [*WAYS]
        measured.append(Setting(config, [name for name in possible if name in (args.ways or possible)]))

    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("DMLS_RAY_CACHE", cache)
        measure_until_known(measured, args.within, 60 * args.minutes, args.rounds)
    print_table([setting.row() for setting in measured])
    print(f"\n{machine('torch')}; {args.precision}, {args.rounds} rounds in a process, 1 thread a rank")


if __name__ == "__main__":
    main()
