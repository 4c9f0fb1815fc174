"""Accuracy of the communication timers and of throughput; `measuring.py` prints the rows.

communication    exposed_comm_ms, the least of two ranks, against the time of a step less that of the same step under
                 no_sync, which reduces nothing; with ZeRO also against a step without its broadcasts
allocator        page faults of a step in a fresh process, with the memory of steps kept and by glibc's default
throughput       images_per_s of a run against those of a bare loop on the same batches, in turn, until the ratio is
                 known to 3%
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import resource
import statistics
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import scipy.stats
import torch
import torch.distributed as dist
import torch.nn.functional as F

from dmls_ray.launchers.spawn import run_spawned
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.train import rank_trainer

_KNOWN_TO = 0.03
"""Half width of the 95% interval of the ratio of throughput at which rounds end."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 7, 80


def communication_row(config: TrialConfig, rounds: int) -> dict[str, str]:
    """Exposed communication of one configuration of two ranks."""
    ranks = _ranks(config, functools.partial(communication, rounds=rounds))
    # A step is over when it is over on the slowest rank.
    silent, reducing = (
        [max(times) for times in zip(*(rank["ms"][name] for rank in ranks), strict=True)]
        for name in ("silent", "reducing")
    )
    less = [with_ - without for with_, without in zip(reducing, silent, strict=True)]
    exposed = [rank["timers"]["exposed_comm_ms"] for rank in ranks]
    zero = " with ZeRO" if config.zero_redundancy else ""
    return {
        "what": f"{config.model}, batch {config.batch_per_rank}, 2 ranks{zero}: exposed communication, ms a step",
        "by timers / with": f"{min(exposed):.2f} (the other rank {max(exposed):.2f})",
        "by difference / without": f"{statistics.median(less):.2f} [{min(less):.2f}, {max(less):.2f}]",
        "ratio": f"{min(exposed) / statistics.median(less):.2f}",
    }


def communication(config: TrialConfig, rank: RankInfo, emit: Emit, *, rounds: int) -> dict[str, Any]:
    """A training function: milliseconds of a step with and without communication, and the timers of the former."""
    trial = rank_trainer(config, rank)
    batches = [batch for _, batch in trial.task.loader.train(0)][:-1]
    step = trial.optimizer_step
    ms: dict[str, list[float]] = {"reducing": [], "silent": []}
    for number in range(rounds + 1):
        if number == 1:  # the first round warms up
            trial.ddp_model.count_from_here()
            step.broadcasts.reset()
        for name in ("reducing", "silent") if number % 2 else ("silent", "reducing"):
            silent = name == "silent"
            dist.barrier()
            began = time.perf_counter()
            with _without_broadcasts(step.optimizer) if silent and config.zero_redundancy else nullcontext():
                for images, labels in batches:
                    with trial.ddp_model.reducing(not silent):
                        F.cross_entropy(trial.ddp_model.forward(images), labels).backward()
                    step.step()
            if number:
                ms[name].append((time.perf_counter() - began) / len(batches) * 1e3)
    return {"run": {"returned": {"ms": ms, "timers": trial.ddp_model.communication(step.broadcasts.mean_ms() or 0.0)}}}


def _without_broadcasts(optimizer: torch.optim.Optimizer) -> AbstractContextManager[object]:
    """Let ZeRO broadcast nothing: the ranks train apart, which costs the same time."""
    return mock.patch.object(optimizer, "_sync_params", return_value=None)


def instruments_row(config: TrialConfig, rounds: int) -> dict[str, str]:
    """Milliseconds of a run that all instruments take which no time contains, next to its total_s.

    They are the link between ranks, checks of code and data, the memory step and the evaluation on training samples.
    """
    instruments, totals = [], []
    for _ in range(rounds):
        runs = [result.values for result in run_spawned(config)]
        instruments.append(max(run["instruments_s"] for run in runs) * 1e3)
        totals.append(max(run["total_s"] for run in runs) * 1e3)
    ranks = f"{config.world_size} rank{'s' if config.world_size > 1 else ''}"
    return {
        "what": f"{config.model}, batch {config.batch_per_rank}, {ranks}: ms of instruments in a run, and total_s",
        "by timers / with": f"{statistics.median(instruments):.0f} [{min(instruments):.0f}, {max(instruments):.0f}]",
        "by difference / without": f"{statistics.median(totals):.0f}",
        "ratio": f"{statistics.median(a / b for a, b in zip(instruments, totals, strict=True)):.3f}",
    }


def allocator_row(config: TrialConfig, rounds: int) -> dict[str, str]:
    """Page faults of one configuration of one rank; each measurement has a fresh process."""
    counts: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        for keeps, values in counts.items():
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                values.append(pool.apply(_page_faults, (config, keeps)))
    kept, default = (statistics.median(counts[keeps]) for keeps in (True, False))
    return {
        "what": f"{config.model}, batch {config.batch_per_rank}, 1 rank: page faults a step, memory kept or not",
        "by timers / with": f"{kept:,.0f} [{min(counts[True]):,.0f}, {max(counts[True]):,.0f}]",
        "by difference / without": f"{default:,.0f} [{min(counts[False]):,.0f}, {max(counts[False]):,.0f}]",
        "ratio": f"{kept / default:.3f}" if default else "",
    }


def _page_faults(config: TrialConfig, keeps: bool) -> float:
    """Page faults of a step of the second epoch."""
    with nullcontext() if keeps else mock.patch("dmls_ray.training.process.keep_freed_pages"):
        trial = rank_trainer(config, RankInfo())
    trial._epoch(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    trial._epoch(2)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / trial.steps_per_epoch


def throughput_row(config: TrialConfig) -> dict[str, str]:
    """Throughput of one configuration of one rank."""
    (seconds,) = _ranks(config, throughput)
    logs = [math.log(bare / ours) for ours, bare in zip(seconds["ours"], seconds["bare"], strict=True)]
    images = seconds["images"]
    reach = _reach(logs)
    low, ratio, high = (math.exp(statistics.fmean(logs) + side * reach) for side in (-1, 0, 1))
    rates = {name: images / statistics.median(seconds[name]) for name in ("ours", "bare")}
    return {
        "what": f"{config.model}, batch {config.batch_per_rank}, 1 rank: images/s of a run and of a bare loop",
        "by timers / with": f"{rates['ours']:,.0f}",
        "by difference / without": f"{rates['bare']:,.0f}",
        "ratio": f"{ratio:.3f} [{low:.3f}, {high:.3f}], n={len(logs)}",
    }


def throughput(config: TrialConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """A training function: seconds of an epoch by the record and of a bare loop, until their ratio is known."""
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    logs: list[float] = []
    trained_on = 0.0
    while len(logs) <= _FEWEST_ROUNDS or (_reach(logs[1:]) > _KNOWN_TO and len(logs) < _MOST_ROUNDS):
        turn: dict[str, float] = {}
        for name in ("ours", "bare") if len(logs) % 2 else ("bare", "ours"):
            trial = rank_trainer(config, rank)
            if name == "bare":
                batches = [(images.clone(), labels.clone()) for _, (images, labels) in trial.task.loader.train(0)]
                turn[name] = _bare_s(trial.task.model, batches)
            else:
                epoch = trial._epoch(1)
                turn[name], trained_on = epoch.metrics["train_s"], epoch.metrics["images"]
        logs.append(math.log(turn["bare"] / turn["ours"]))
        if len(logs) > 1:  # the first round warms up
            for name, value in turn.items():
                seconds[name].append(value)
    return {"run": {"returned": {**seconds, "images": trained_on}}}


def _bare_s(model: torch.nn.Module, batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Seconds of nothing but the arithmetic of an epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    model.train()
    began = time.perf_counter()
    for images, labels in batches:
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return time.perf_counter() - began


def _reach(logs: Sequence[float]) -> float:
    """Half the width of the 95% interval of a mean."""
    spread = statistics.stdev(logs) / math.sqrt(len(logs))
    return float(scipy.stats.t.ppf(0.975, len(logs) - 1)) * spread


def _ranks(config: TrialConfig, train: Any) -> list[dict[str, Any]]:
    results = run_spawned(config, train=train)
    for result in results:
        if result.outcome != "ok":
            raise SystemExit(result.traceback)
    return [result.run["returned"] for result in results]
