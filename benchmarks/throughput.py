"""Images per second of training: the reports' loop, dmls_ray, the bare limit and other trainers, in one process.

    plain        the reports' loop: PIL, ToTensor and Normalize in a DataLoader with 2 workers, .item() every step
    dataloader   dmls_ray with --loader dataloader
    resident     dmls_ray with --loader resident
    bare         the limit: forward, backward and fused step on tensors in memory, and nothing else
    accelerate, lightning    the same model under Hugging Face accelerate and under Lightning, where they are installed

All train the same model on the same images (scikit-learn's digits as JPEGs of the model's size, or --images FOLDER, an
image folder) with Adam and one thread per rank. Each round runs all ways one after the other, in a rotating order;
ratios are taken within a round. The output has medians over rounds, with the smallest and the largest ratio.
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
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.throughput_images import IMAGES, SHAPES, settings
from benchmarks.throughput_ways import PEERS, WAYS
from dmls_ray.launchers.base import rank_info
from dmls_ray.launchers.spawn import run_spawned
from dmls_ray.records.provenance import describe_machine, describe_versions
from dmls_ray.training.memory import release_free_pages
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.classification.config import TrialConfig


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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default: 7)")
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
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("DMLS_RAY_CACHE", cache)
        for model, batch, world_size in itertools.product(args.models, args.batches, args.world_sizes):
            config = settings(model, batch, world_size, args)
            rank_info(config, 0)  # enough devices, or one clear line
            ways = [name for name in [*WAYS, *(peers if world_size == 1 else [])] if name in (args.ways or [name])]
            seconds = measure(config, args.rounds, ways)
            rows.append(_row(config, seconds, IMAGES[model] * args.scale))
            print(f"{model}, batch {batch}, world size {world_size}: done", flush=True)
    machine, versions = describe_machine(), describe_versions()
    print(pd.DataFrame(rows).fillna("").to_markdown(index=False, disable_numparse=True))
    print(
        f"\n{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['gpus']) or 'no GPU'}; "
        f"torch {versions['torch']}; {args.precision}, {args.memory_format}; n={args.rounds}, 1 thread a rank"
    )


def _row(config: TrialConfig, seconds: dict[str, list[float]], images: int) -> dict[str, str]:
    row = {"model": config.model, "batch_per_rank": str(config.batch_per_rank), "world_size": str(config.world_size)}
    for name, values in seconds.items():
        row[f"{name} images/s"] = f"{images / statistics.median(values):,.0f}"
    for one, other in (("resident", "bare"), ("resident", "plain"), ("dataloader", "plain"), ("resident", "accelerate"),
                       ("resident", "lightning")):  # fmt: skip
        if one in seconds and other in seconds:
            ratios = [b / a for a, b in zip(seconds[one], seconds[other], strict=True)]
            row[f"{one} / {other}"] = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
    return row


def _installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()
