"""The run of a command on a rank: it is started in the copy of the repository, timed, and its output is read."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import torch

from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import Reported
from dmls_ray.records.run_events import Progress, RankResult
from dmls_ray.training.marks import device_name
from dmls_ray.training.rank import PROGRESS_INTERVAL_S, Emit, RankInfo
from dmls_ray.training.run_clock import RunClock
from dmls_ray.training.utilization import UtilizationSampler
from dmls_ray.workloads.command.workload import CommandConfig
from dmls_ray.workloads.script.printed import last_line_of, numbers_printed
from dmls_ray.workloads.script.rank_run import become_fresh_process, output_in_file, take_files


def time_command(config: CommandConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """Run a command to its end, and time it; `emit` and the result are as those of `run_training`.

    Args:
        config: the configuration of the run.
        rank: this rank.
        emit: receives progress while the command prints something.

    Raises:
        ConfigError: as `RepositoryCopy.take`.
        OSError: the command cannot be started on this machine.
    """
    become_fresh_process(config, rank)
    program, words, _ = take_files(config, rank)
    log = output_in_file(rank)
    device = torch.device(rank.device)
    size = 0
    with UtilizationSampler(device) as utilization, ThreadPoolExecutor() as pool:
        # In another thread, since waiting for a process with a timeout polls, which would round its time.
        running = pool.submit(_run, [program, *words], rank.clock)
        while wait([running], PROGRESS_INTERVAL_S).not_done:
            if os.path.getsize(log) > size:
                size = os.path.getsize(log)
                emit(Progress())
        code, total_s = running.result()

    reported = Reported(config.canonical())
    result = RankResult()
    # Without its memory, which is not that of this process.
    result.add({"total_s": total_s, "instruments_s": rank.clock.instruments_s, **utilization.read()})
    result.run.device = device_name(device)
    result.run.reported = reported.read(numbers_printed(log, config.patterns).last, ())
    result.run.not_recorded = reported.left_out
    result.run.add({"exit_code": code})
    if code:
        result.outcome = Outcome.ERROR
        result.reason = f"exit code {code}: {last_line_of(log)}".rstrip(": ")
    return result


def _run(words: Sequence[str], clock: RunClock) -> tuple[int, float]:
    """The exit code of a command, and its seconds, which are all that counts as the time of the run."""
    clock.start(time.perf_counter() - clock.assigned_at)
    code = subprocess.call(words)
    return code, clock.total_s
