"""Cost of a trial beyond its training.

dmls_ray against the documented Tune + TorchTrainer pattern and a torchrun launch: all three run the same `train_rank`
on the same trivial configuration, and the cost of a trial is its wall time minus the time that the rank measured from
assignment to result. In addition: the time of the whole process of a sweep of 64 trivial runs, from Enter to prompt,
and the time until its first row is on the disk. And the cost of a run of a script beyond its own loop, next to `python`
and `torchrun`.

    python benchmarks/overhead.py [--peer-trials 3] [--trials 12] [--sweeps 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dmls_ray import TrialConfig, close, sweep
from dmls_ray.training.run_clock import RunClock

TRIVIAL = {"dataset": "synthetic:shape=1x8x8,classes=4,train=160,test=40", "batch_per_rank": 8, "epochs": 1}
"""20 steps at world size 1, 10 at world size 2; milliseconds of training."""

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT))


def ours(world_size: int, trials: int) -> list[float]:
    """Seconds a run beyond total_s, seen from the driver, in one worker group; the wait for its ranks is in the time of
    the whole sweep.
    """
    with tempfile.TemporaryDirectory() as folder:
        axes = {**TRIVIAL, "world_size": world_size, "device": "cpu", "seed": range(trials)}
        results = sweep(axes, repeats=1, out=f"{folder}/sweep")
        return [float(value) for value in results.runs["overhead_s"].dropna()]


def documented(world_size: int, trials: int) -> list[float]:
    """The pattern of Ray's documentation: a Tune function that builds a TorchTrainer and calls fit()."""
    import ray
    from ray import tune

    ends: list[float] = []

    class Ends(tune.Callback):
        """Notes when each trial ends."""

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            ends.append(time.monotonic())

    ray.init(include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        train = tune.with_parameters(_tune_trial, folder=folder, world_size=world_size)
        tuner = tune.Tuner(
            tune.with_resources(train, {"memory": 1}),
            param_space={"number": tune.grid_search(list(range(trials)))},
            tune_config=tune.TuneConfig(max_concurrent_trials=1),
            run_config=tune.RunConfig(storage_path=folder, name="tune", verbose=0, callbacks=[Ends()]),
        )
        began = time.monotonic()
        tuner.fit()
        training = [json.loads((Path(folder) / f"{number}.json").read_text()) for number in range(trials)]
    ray.shutdown()
    walls = [end - start for start, end in zip([began, *ends], ends, strict=False)]
    return [wall - total for wall, total in zip(walls, training, strict=True)]


def _tune_trial(config: dict[str, Any], folder: str, world_size: int) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    TorchTrainer(
        _train_worker,
        train_loop_config={"folder": folder, "world_size": world_size, "number": config["number"]},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=world_size, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=folder, name=f"train-{config['number']}"),
    ).fit()


def _train_worker(config: dict[str, Any]) -> None:
    import ray.train

    rank = ray.train.get_context().get_world_rank()
    total_s = _run_rank(rank, config["world_size"])
    if rank == 0:
        (Path(config["folder"]) / f"{config['number']}.json").write_text(json.dumps(total_s))


def torchrun(world_size: int, trials: int) -> list[float]:
    """A fresh launch a trial."""
    costs = []
    for _ in range(trials):
        with tempfile.TemporaryDirectory() as folder:
            total_s_file = Path(folder) / "total_s"
            began = time.monotonic()
            launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}"]
            subprocess.run(
                [sys.executable, *launch, __file__, "--as-rank", str(total_s_file)],
                check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            costs.append(time.monotonic() - began - float(total_s_file.read_text()))
    return costs


def _as_torchrun_rank(total_s_file: str) -> None:
    import torch.distributed as dist

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    clock = RunClock()  # ours makes its process group inside total_s, too
    if world_size > 1:
        dist.init_process_group("gloo")
    total_s = _run_rank(rank, world_size, clock)
    if world_size > 1:
        dist.destroy_process_group()
    if rank == 0:
        Path(total_s_file).write_text(str(total_s))


def _run_rank(rank: int, world_size: int, clock: RunClock | None = None) -> float:
    from dmls_ray.training.rank import RankInfo
    from dmls_ray.workloads.classification.train import train_rank

    config = TrialConfig(**{**TRIVIAL, "world_size": world_size})  # type: ignore[arg-type]
    info = RankInfo(
        rank=rank,
        world_size=world_size,
        backend="gloo" if world_size > 1 else None,
        clock=clock or RunClock(),
    )
    result = train_rank(config, info, lambda event: None)
    return result.metrics["total_s"]


SCRIPT = """
import json, os, time
import torch
import torch.distributed as dist

model = torch.nn.Linear(16, 4)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began = time.perf_counter()
for _ in range(50):
    optimizer.zero_grad()
    model(torch.randn(32, 16)).square().mean().backward()
    optimizer.step()
if os.environ.get("RANK", "0") == "0":
    print(json.dumps({"loop_s": time.perf_counter() - began}))
"""
"""Prints the seconds of its own loop."""


def script_of_ours(world_size: int, trials: int) -> list[float]:
    """Seconds a run of a script beyond its loop, seen from the driver."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        axes = {"world_size": world_size, "steps": None, "device": "cpu", "threads_per_rank": 1}
        runs = sweep(str(script), axes, repeats=trials, out=f"{folder}/sweep").runs
        return [float(cost) for cost in (runs.overhead_s + runs.total_s - runs.loop_s).dropna()]


def script_started(world_size: int, trials: int) -> list[float]:
    """The same of a new interpreter: `python train.py`, or torchrun for several ranks."""
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}"]
        command = [sys.executable, *(torchrun if world_size > 1 else []), str(script)]
        for _ in range(trials):
            began = time.monotonic()
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
            loop_s = json.loads(done.stdout.splitlines()[-1])["loop_s"]
            costs.append(time.monotonic() - began - loop_s)
    return costs


def whole_sweep() -> tuple[float, float]:
    """Seconds from Enter to prompt of a sweep of 64 trivial runs, and from Enter until the first run's row is on
    the disk.
    """
    flags = [word for name, value in TRIVIAL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(PROJECT / "sweeps" / "grid.py"), *flags, "--world-size", "1", "2"]
        command += ["--device", "cpu", "--seed", *map(str, range(16)), "--repeats", "2", "--out", folder]
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        first, runs = None, Path(folder) / "runs.jsonl"
        while process.poll() is None:
            if first is None and runs.exists() and runs.stat().st_size:
                first = time.monotonic() - began
            time.sleep(0.02)
        ended = time.monotonic() - began
        rows = runs.read_text().splitlines()
        if process.returncode or len(rows) != 64 or first is None:
            raise SystemExit(f"the sweep of 64 runs ended with exit code {process.returncode} and {len(rows)} rows")
    return ended, first


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-trials", type=int, default=3, help="trials of each peer (default: 3)")
    parser.add_argument("--trials", type=int, default=12, help="trials of this system (default: 12)")
    parser.add_argument("--sweeps", type=int, default=3, help="whole sweeps of 64 runs (default: 3)")
    parser.add_argument("--as-rank", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_rank:
        _as_torchrun_rank(args.as_rank)
        return
    from benchmarks.common import machine, print_table  # what a rank of torchrun does not load

    rows = []
    ways: list[tuple[str, Callable[[int, int], list[float]], int]] = [
        ("Tune + TorchTrainer, as documented", documented, args.peer_trials),
        ("torchrun, one launch per trial", torchrun, args.peer_trials),
        ("dmls_ray, one worker group", ours, args.trials),
        ("a script, python or torchrun", script_started, args.peer_trials),
        ("a script, dmls_ray", script_of_ours, args.trials),
    ]
    for world_size in (1, 2):
        for name, measure, trials in ways:
            rows.append(_row(f"{name}: s per trial beyond training", world_size, measure(world_size, trials)))
            close()  # a sweep keeps its Ray for the next one
    whole = [whole_sweep() for _ in range(args.sweeps)]
    rows.append(_row("dmls_ray: s for 64 runs, Enter to prompt", "1, 2", [ended for ended, _ in whole]))
    rows.append(_row("dmls_ray: s from Enter to the first run's row", "1, 2", [first for _, first in whole]))
    print_table(rows)
    print(f"\n{machine('torch', 'ray')}")


def _row(what: str, world_size: object, values: list[float]) -> dict[str, str]:
    return {
        "what": what,
        "world_size": str(world_size),
        "median": f"{statistics.median(values):.3f}",
        "min": f"{min(values):.3f}",
        "max": f"{max(values):.3f}",
        "n": str(len(values)),
    }


if __name__ == "__main__":
    main()
