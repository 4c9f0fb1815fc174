"""The part of one rank in a run of a script: the script becomes the main module of this process, and is observed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import torch

from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.error_to_outcome import check_code, failure, result_of_rank
from dmls_ray.training.observed.observed_run import ObservedRun, not_finite
from dmls_ray.training.observed.observer import ObservedSteps
from dmls_ray.training.process import VARIABLES, seed_process
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.rank_meter import RankMeter
from dmls_ray.util.cores import usable_cores
from dmls_ray.workloads.script.as_main import place_in_program
from dmls_ray.workloads.script.config import SEED, THREADS, ScriptConfig
from dmls_ray.workloads.script.ended import Ended, end_process, flush, run_to_end
from dmls_ray.workloads.script.last_step import ScriptEnd
from dmls_ray.workloads.script.loggers import numbers_logged
from dmls_ray.workloads.script.meeting import Meeting
from dmls_ray.workloads.script.paths import enter, word_in_copy
from dmls_ray.workloads.script.printed import last_exception_in, last_line_of, numbers_printed
from dmls_ray.workloads.script.revisions import imported_as_they_are
from dmls_ray.workloads.script.written import FileUse

_MALLOPT = {"MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_TOP_PAD_": -2, "MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_MMAP_MAX_": -4}
"""Variable that glibc reads when a process starts -> the parameter of mallopt(3) that it sets, as in malloc.h."""


def run_script(config: ScriptConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """Run a script on this rank; `emit` and the result are as those of `run_training`.

    Args:
        config: the configuration of the run.
        rank: this rank.
        emit: receives signs of progress.
    """
    meter = RankMeter(rank)
    meeting = become_fresh_process(config, rank)
    with meter.clock.untimed():
        program, words, tree = take_files(config, rank)
    meter.begin_memory()  # after the variables of the script, which CUDA reads when it starts
    end = ScriptEnd(config.steps, meeting)
    steps = ObservedSteps(meter, emit, end.warmup_steps, config.evaluation, end.step_ended)
    observed = ObservedRun(steps, taken=config.canonical())

    def result_of(ended: Ended) -> RankResult:
        flush()
        told = logged.or_those_of(numbers_printed(log, config.patterns))
        # Before the result, whose instruments have files of their own.
        used = {
            "written": files.written(),
            "written_in_copy": files.written_in_private() if tree is not None else [],
            "read": files.read(),
        }
        is_told = not told.last.keys().isdisjoint(config.patterns)
        result = observed.result(told.last)
        # What it does after it was told to end is not asked for.
        own_end = Ended() if end.is_reached else ended
        result.outcome, result.reason = _outcome_of(config, own_end, steps, rank, log, is_told)
        if ended.error is not None and rank.world_size > 1:
            # Another rank's end is the cause then.
            result.is_symptom = failure(ended.error, rank).is_symptom
        result.metrics["setup_s"] = end.first_step_s

        run = result.run
        if config.steps == "auto":
            del run.metrics["steps"]  # how long was measured says nothing of the training
        # A rank without steps serves others, unless it failed before these had made their last one.
        has_no_result = not is_told and not steps.count
        if has_no_result and meeting is not None and (ended.error is None or meeting.was_left()):
            run.without_steps = _without_steps(rank, last_line_of(log))
        if config.steps is not None:
            run.series = told.series(observed.reported.columns)
        losses = steps.losses.of_steps
        run.was_ended = end.is_reached
        run.said = config.said()
        run.add(
            {
                "exit_code": ended.code,
                "threads": str(torch.get_num_threads()),
                "last_loss": end.last_loss(losses),
                "tenth_loss": losses[9] if len(losses) > 9 else None,
            }
        )
        run.add(used)
        return result

    def end_here(ended: Ended) -> NoReturn:
        result = result_of_rank(result_of(ended), rank, "what the script measured")
        result.steps = steps.count
        emit(result)  # type: ignore[arg-type]  # to the process that waits for the result of this one
        end_process(ended.code)

    end.end_process = lambda: end_here(Ended())
    log = output_in_file(rank)
    folder = os.path.dirname(log)
    with _working_folder(config), numbers_logged(folder, steps.faults) as logged:
        place = os.getcwd()
        files = FileUse(place, folder, [place if config.own_folder else "", str(tree or "")])
        with meter, steps.counted():
            ended = run_to_end(program, words, end_here)
        return result_of(ended)


def take_files(config: ScriptConfig, rank: RankInfo) -> tuple[str, list[str], Path | None]:
    """The program and its words, and the folder of the run's own copy of a repository; None without a copy.

    Raises:
        CodeDiffersError: the files are not those that the sweep began with.
    """
    program, words, tree = config.program, config.words(), None
    if config.copy is not None:
        # At world size 1, no other process takes part, and other sweeps may have a run of this name.
        tree = config.copy.take(f"{rank.name} {rank.store_address or os.getpid()}")
        program, *words = [word_in_copy(word, config.copy.root, tree) for word in (program, *words)]
        enter(config.copy.root, tree)
    if rank.identity.modules:
        # In a copy, which has the files of the beginning whatever the user edits.
        check_code(replace(rank.identity, modules=(program,)), rank.machine)
    return program, words, tree


def become_fresh_process(config: ScriptConfig, rank: RankInfo) -> Meeting | None:
    """Give this fork of a server what a new interpreter has, and more than one rank what torchrun gives them.

    Returns:
        Where the ranks meet; None at world size 1.
    """
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    os.environ |= {SEED: str(config.seed), **config.variables()}
    libc = ctypes.CDLL(None)
    for name in config.variables().keys() & _MALLOPT.keys():
        # Another library has no such function and reads no such variable, and glibc passes over what is no number.
        with contextlib.suppress(AttributeError, ValueError):
            libc.mallopt(_MALLOPT[name], min(int(config.variables()[name], 0), 2**31 - 1))  # a C int
    # PyTorch has read it when it was loaded.
    if config.variables().get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1":
        torch.set_float32_matmul_precision("high")
    threads = config.threads_per_rank or max(1, usable_cores() // rank.local_world_size)
    if THREADS in config.variables():
        threads = int(config.variables()[THREADS])
    torch.set_num_threads(threads)
    # Unseeded generators would draw the same in all forks. A rank has its own seed, as a process of torchrun has.
    seed_process(config.seed + rank.rank)
    os.environ[THREADS] = str(threads)
    if rank.store_address is None:
        return None  # as `python train.py`, which has no ranks
    meeting = Meeting(rank, *rank.store_address)
    # Besides those that ranks of every workload have.
    os.environ |= {
        "ROLE_RANK": str(rank.rank),
        "ROLE_WORLD_SIZE": str(rank.world_size),
        "MASTER_ADDR": meeting.store.host,
        "MASTER_PORT": str(meeting.store.port),
        "TORCHELASTIC_USE_AGENT_STORE": str(True),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": rank.name,
    }
    return meeting


def output_in_file(rank: RankInfo) -> str:
    """Let this process write its output into a file from now on, up to its exit handlers; returns the path."""
    folder = tempfile.gettempdir() if rank.artifacts is None else rank.artifacts.folder
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"rank{rank.rank}.log")
    written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(source, target)
    os.close(written)
    os.close(nothing)
    sys.stdin = os.fdopen(os.dup(0), encoding="utf-8")
    return path


@contextlib.contextmanager
def _working_folder(config: ScriptConfig) -> Iterator[None]:
    if not config.own_folder:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="dmls_ray-run-") as folder, contextlib.chdir(folder):
        yield


def _outcome_of(
    config: ScriptConfig, ended: Ended, steps: ObservedSteps, rank: RankInfo, log: str, is_told: bool
) -> tuple[Outcome, str]:
    """The outcome of a run, and why it is not ok.

    Args:
        config: the configuration of the run.
        ended: how the script ended, up to its last step.
        steps: those that it made.
        rank: this rank.
        log: the file with what it printed.
        is_told: whether it printed a number that the user asks for: steps that are not seen are no failure then.
    """
    if ended.error is not None:
        failed = failure(ended.error, rank)
        place = place_in_program(ended.error)
        reason = f"{failed.reason} ({place})" if place else failed.reason
        if isinstance(ended.error, KeyError) and ended.error.args[0] in VARIABLES:
            reason += "; without ranks as torchrun has them: leave world size 1 out, or set the variables by --env"
        if "no known parent package" in reason:
            reason += "; a module of a package is run by its name: dmls-ray sweep -m package.train"
        return failed.outcome, reason
    if ended.replaced:
        return Outcome.ERROR, ended.replaced
    losses = enumerate(steps.losses.of_steps, 1)
    if loss := not_finite((f"the loss of step {number}", loss) for number, loss in losses):
        return Outcome.DIVERGED, loss
    if ended.code:
        # Not with what it printed in training, which differs in each run: equal failures have equal reasons.
        said = last_exception_in(log) or ("" if steps.count else last_line_of(log))
        return Outcome.ERROR, f"exit code {ended.code} after {steps.count} steps{said and f': {said}'}"
    if not steps.count and rank.world_size == 1 and not is_told:
        return Outcome.ERROR, _without_steps(rank, last_line_of(log))
    if config.copy is not None and (as_they_are := imported_as_they_are(config.copy.root)):
        return Outcome.ERROR, (
            f"{', '.join(as_they_are)} came from the repository itself and not from the copy at the revision, for "
            "example by an editable installation; uninstall it, and let the script find its modules by their folder"
        )
    return Outcome.OK, ""


def _without_steps(rank: RankInfo, last_line: str) -> str:
    """Why a script that ended by itself has no result."""
    # Of another kind are those of torch.func, say, which computes gradients without a backward pass.
    reason = (
        "the script ended, and no optimizer step or backward pass was seen in its process. If it makes steps of "
        "another kind, --metric-regex NAME PATTERN reads a rate that it prints"
    )
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    if rank.world_size == 1 and children.ru_utime + children.ru_stime > 0:
        reason += (
            "; if it starts processes that train, leave that to dmls_ray: --world-size 2, and call what it gives to "
            "mp.spawn with int(os.environ.get('RANK', 0)), as docs/scripts.md shows"
        )
    return f"{reason}. Its last line: {last_line}" if last_line else reason
