"""Accuracy and cost of the memory of a run; `measuring.py` prints the rows.

tensors     tensor_mem_mib against the peak of PyTorch's MemTracker, which sees the tensors of Python and not what a
            kernel allocates for itself
growth      what a batch of 256 needs more than one of 32, by the numbers of runs in a process that served other runs,
            against the peaks of fresh processes that train in a bare loop
cost        milliseconds of the untimed step, against those of a training step
"""

from __future__ import annotations

import multiprocessing
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch
import torch.nn.functional as F

from dmls_ray.launchers.inline import run_inline
from dmls_ray.training.memory import MIB, MemoryMeter
from dmls_ray.training.memory_step import measure_tensors
from dmls_ray.training.rank import RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.train import rank_trainer

_SMALL, _LARGE = 32, 256


def memory_rows(config: TrialConfig, rounds: int) -> Iterator[dict[str, str]]:
    """The rows of one model; `config` is of one rank."""
    small, large = (config.replace(batch_per_rank=batch) for batch in (_SMALL, _LARGE))
    yield _tensors_row(small)
    yield from _growth_rows(small, large, rounds)
    yield _cost_row(small, rounds)


def _tensors_row(config: TrialConfig) -> dict[str, str]:
    from torch.distributed._tools.mem_tracker import MemTracker

    trainer = rank_trainer(config, RankInfo())
    trainer.run(lambda event: None)
    measured = measure_tensors(config, 0, trainer.task, trainer.ddp_model, trainer.optimizer_step)["tensor_mem_mib"]
    trainer.model.train()
    tracker = MemTracker()
    tracker.track_external(trainer.model, trainer.optimizer_step.optimizer)
    with tracker:
        images, labels = trainer.task.example_batch(_SMALL)
        F.cross_entropy(trainer.model(images), labels).backward()
        trainer.optimizer_step.optimizer.step()
    tracked = tracker.get_tracker_snapshot("peak")[trainer.device]["Total"] / MIB
    return _row(f"{_name(config)}: tensor_mem_mib, against MemTracker", measured, [tracked])


def _growth_rows(small: TrialConfig, large: TrialConfig, rounds: int) -> Iterator[dict[str, str]]:
    names = ("tensor_mem_mib", "host_mem_mib")
    by_run: dict[str, list[float]] = {name: [] for name in names}
    fresh: list[float] = []
    run_inline(large)  # the first run loads libraries
    for _ in range(rounds):
        values = [run_inline(config).values for config in (small, large)]
        for name in names:
            by_run[name].append(values[1][name] - values[0][name])
        fresh.append(_fresh_peak_mib(large) - _fresh_peak_mib(small))
    for name in names:
        what = f"{small.model}: MiB more at batch {_LARGE} than at {_SMALL}, {name}, against fresh processes"
        yield _row(what, statistics.median(by_run[name]), fresh, by_run[name])


def _cost_row(config: TrialConfig, rounds: int) -> dict[str, str]:
    trainer = rank_trainer(config, RankInfo())
    trainer.run(lambda event: None)
    parts = (trainer.task, trainer.ddp_model, trainer.optimizer_step)
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        measure_tensors(config, 0, *parts)
        times.append((time.perf_counter() - began) * 1e3)
    step = trainer.timer.percentiles()["step_ms_p50"]
    what = f"{_name(config)}: ms of the untimed step, against a training step"
    return _row(what, statistics.median(times), [step], times)


def meter_ms(rounds: int = 100) -> tuple[float, float]:
    """Milliseconds that the memory meter takes at the start of a run and for each epoch (medians)."""
    starts, epochs = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        meter = MemoryMeter(torch.device("cpu"))
        started = time.perf_counter()
        with meter.training():
            pass
        starts.append((started - began) * 1e3)
        epochs.append((time.perf_counter() - started) * 1e3)
    return statistics.median(starts), statistics.median(epochs)


def _fresh_peak_mib(config: TrialConfig) -> float:
    """What some steps add to the peak resident set of a new process (Linux)."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_bare_peak_mib, (config,))


def _bare_peak_mib(config: TrialConfig) -> float:
    from dmls_ray.workloads.classification.model_builder import build_model

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


def _name(config: TrialConfig) -> str:
    return f"{config.model}, batch {config.batch_per_rank}, 1 rank"


def _row(what: str, measured: float, independent: list[float], spread: list[float] | None = None) -> dict[str, str]:
    reference = statistics.median(independent)
    return {
        "what": what,
        "by timers / with": _with_range(measured, spread or []),
        "by difference / without": _with_range(reference, independent),
        "ratio": f"{measured / reference:.2f}",
    }


def _with_range(value: float, values: list[float]) -> str:
    return f"{value:.2f}" + (f" [{min(values):.2f}, {max(values):.2f}]" if len(values) > 1 else "")
