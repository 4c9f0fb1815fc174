"""Images per second of training: the reports' loop, dmls_ray, the bare limit and other trainers, in one process.

    plain        the reports' loop: PIL, ToTensor and Normalize in a DataLoader with 2 workers, .item() every step
    dataloader   dmls_ray with --loader dataloader
    resident     dmls_ray with --loader resident
    bare         the limit: forward, backward and fused step on tensors in memory, and nothing else
    accelerate, lightning    the same model under Hugging Face accelerate and under Lightning, where they are installed

All train the same model on the same images (scikit-learn's digits as JPEGs of the model's size, or --images FOLDER, an
image folder) with Adam and one thread per rank. Each round runs all ways one after the other, in a rotating order;
ratios are taken within a round. Processes differ among themselves by more than chance, so each process is one value:
the geometric mean over its rounds. Every setting gets processes until each ratio is known to --within (half the width
of its 95% interval), or until --minutes are spent. The output has the medians of images/s, and each ratio with its
interval and the number of processes.
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.throughput_images import IMAGES, SHAPES, settings
from benchmarks.throughput_ways import PEERS, WAYS
from dmls_ray.analysis.export.text_tables import markdown
from dmls_ray.analysis.stats.intervals import Estimate, estimate
from dmls_ray.launchers.base import rank_info
from dmls_ray.launchers.spawn import run_spawned
from dmls_ray.records.provenance import describe_machine, describe_versions
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


def rounds(config: TrialConfig, rank: RankInfo, emit: Emit, *, count: int, ways: list[str]) -> dict[str, Any]:
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
    return {"run": {"returned": {"seconds": seconds_by_way}}}


def measure(config: TrialConfig, count: int, ways: list[str]) -> dict[str, list[float]]:
    """Seconds by way and round; of several ranks, the slowest."""
    ranks = run_spawned(config, train=functools.partial(rounds, count=count, ways=ways))
    for result in ranks:
        if result.outcome != "ok":
            raise SystemExit(result.traceback)
    return {
        name: [max(values) for values in zip(*(rank.run["returned"]["seconds"][name] for rank in ranks), strict=True)]
        for name in ways
    }


@dataclass
class Setting:
    """A configuration, the ways that train it, and what the processes so far measured."""

    config: TrialConfig
    ways: list[str]
    images: int
    """Images that one way trains on in one round."""
    processes: list[dict[str, list[float]]] = field(default_factory=list)
    """Seconds by way and round, of each process."""

    def ratios(self) -> dict[tuple[str, str], Estimate]:
        """Speed of one way over that of another; one value per process."""
        values = {}
        for one, other in COMPARED:
            if one in self.ways and other in self.ways:
                pairs = [(process[one], process[other]) for process in self.processes]
                means = [statistics.geometric_mean(b / a for a, b in zip(*pair, strict=True)) for pair in pairs]
                values[one, other] = estimate(means, "amount")
        return values

    def is_known(self, within: float) -> bool:
        """Whether half the width of each ratio's interval, as a factor, is at most this."""
        return all(
            ratio.low is not None and ratio.high is not None and (ratio.high / ratio.low) ** 0.5 <= 1 + within
            for ratio in self.ratios().values()
        )

    def row(self) -> dict[str, str]:
        """As a row of the output."""
        config = self.config
        row = {name: str(getattr(config, name)) for name in ("model", "batch_per_rank", "world_size")}
        for name in self.ways:
            seconds = statistics.median(second for process in self.processes for second in process[name])
            row[f"{name} images/s"] = f"{self.images / seconds:,.0f}"
        for (one, other), ratio in self.ratios().items():
            interval = "" if ratio.low is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
            row[f"{one} / {other}"] = f"{ratio.centre:.2f}{interval}"
        return {**row, "n": str(len(self.processes))}


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
    parser.add_argument("--memory-format", default="contiguous")
    parser.add_argument("--images", help="image folder to take the pictures from (default: scikit-learn's digits)")
    parser.add_argument("--scale", type=int, default=1, help="times as many images a round (default: 1)")
    args = parser.parse_args()
    peers = [name for name in PEERS if _installed(name)]
    measured = []
    for model, batch, world_size in itertools.product(args.models, args.batches, args.world_sizes):
        config = settings(model, batch, world_size, args)
        rank_info(config, 0)  # enough devices, or one clear line
        ways = [name for name in [*WAYS, *(peers if world_size == 1 else [])] if name in (args.ways or [name])]
        measured.append(Setting(config, ways, IMAGES[model] * args.scale))

    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("DMLS_RAY_CACHE", cache)
        measure_until_known(measured, args.within, 60 * args.minutes, args.rounds)
    machine, versions = describe_machine(), describe_versions()
    rows = [setting.row() for setting in measured]
    print(markdown(pd.DataFrame(rows).fillna("")))
    print(
        f"\n{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['gpus']) or 'no GPU'}; "
        f"torch {versions['torch']}; {args.precision}, {args.memory_format}; {args.rounds} rounds in a process, "
        "1 thread a rank"
    )


def _installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()
