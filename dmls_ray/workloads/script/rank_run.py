"""The part of one rank in a run of a script: the script becomes the main module of this process, and is observed."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import Reported
from dmls_ray.records.run_events import WITHOUT_STEPS, RankResult
from dmls_ray.training.clocks import PhaseClock
from dmls_ray.training.error_to_outcome import check_code, failure
from dmls_ray.training.marks import device_name
from dmls_ray.training.memory import MemoryMeter, UtilizationSampler
from dmls_ray.training.process import VARIABLES, seed_process
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.util.cores import usable_cores
from dmls_ray.workloads.script.as_main import place_in_program
from dmls_ray.workloads.script.config import THREADS, ScriptConfig
from dmls_ray.workloads.script.ended import Ended, end_process, flush, run_to_end
from dmls_ray.workloads.script.loggers import numbers_logged
from dmls_ray.workloads.script.meeting import Meeting
from dmls_ray.workloads.script.observer import ScriptSteps
from dmls_ray.workloads.script.paths import enter, word_in_copy
from dmls_ray.workloads.script.printed import last_exception_in, last_line_of, numbers_printed
from dmls_ray.workloads.script.revisions import imported_as_they_are
from dmls_ray.workloads.script.written import FileUse


def run_script(config: ScriptConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Run a script on this rank; `emit` and the result are as those of `run_training`.

    Args:
        config: the configuration of the run.
        rank: this rank.
        emit: receives signs of progress.
    """
    device, copy = torch.device(rank.device), config.copy
    clock = PhaseClock(device, rank.assigned_at, rank.instruments_s)
    meeting = _become_fresh_process(config, rank)
    program, words, tree = config.program, config.words(), None
    with clock.untimed():
        if copy is not None:
            # At world size 1, no other process takes part, and other sweeps may have a run of this name.
            tree = copy.take(f"{rank.name} {rank.store_address or os.getpid()}")
            program, *words = [word_in_copy(word, copy.root, tree) for word in (program, *words)]
            enter(copy.root, tree)
        if rank.identity.modules:
            # In a copy, which has the files of the beginning whatever the user edits.
            check_code(replace(rank.identity, modules=(program,)), rank.machine)
    memory = MemoryMeter(device)  # after the variables of the script, which CUDA reads when it starts
    steps = ScriptSteps(rank, emit, clock, config.steps, meeting, config.evaluation)
    utilization = UtilizationSampler(device)

    def measured(ended: Ended) -> dict[str, Any]:
        flush()
        reported = Reported(taken=config.canonical())
        told = logged.or_those_of(numbers_printed(log, config.patterns))
        is_told = not told.last.keys().isdisjoint(config.patterns)
        outcome, reason = _outcome_of(copy.root if copy is not None else None, ended, steps, rank, log, is_told)
        metrics = reported.read(told.last, set())
        return {
            "outcome": outcome.value,
            "reason": reason,
            # Another rank's end is the cause then.
            "is_symptom": rank.world_size > 1 and ended.error is not None and failure(ended.error, rank).is_symptom,
            "setup_s": steps.first_step_s,
            "total_s": clock.total_s,
            "instruments_s": clock.instruments_s,
            **steps.ledger.times(),
            **steps.timer.power.read(),
            **steps.ledger.rates(),
            "sample_digests": steps.ledger.digests(),
            **memory.read(),
            "no_tensor_mem": "a script has no step that can be repeated after it",
            **(steps.agreement.read_optimizers() if steps.agreement is not None else {}),
            **utilization.read(),
            "run": {
                "device": device_name(device),
                "backend": rank.backend or "",
                # How long was measured says nothing of the training.
                "steps": None if config.steps == "auto" else steps.count,
                "exit_code": ended.code,
                "threads": str(torch.get_num_threads()),
                **steps.ledger.facts(),
                **(
                    {WITHOUT_STEPS: _without_steps(rank, last_line_of(log))}
                    if not is_told and serves_others(ended)
                    else {}
                ),
                "said": config.said(),
                "last_loss": steps.last_loss,
                "tenth_loss": steps.ledger.losses.values[9] if len(steps.ledger.losses.values) > 9 else None,
                "not_recorded": reported.left_out,
                "written": files.written(),
                "written_in_copy": files.written_in_private() if copy is not None else [],
                "read": files.read(),
                "was_ended": steps.is_at_end,
                "series": {} if config.steps is None else told.series(reported.columns),
                **metrics,
            },
        }

    def serves_others(ended: Ended) -> bool:
        if steps.count or meeting is None:
            return False
        return ended.error is None or meeting.was_left()

    def end_here(ended: Ended) -> NoReturn:
        facts: dict[str, Any] = {"rank": rank.rank, "machine": rank.machine, "device": rank.device}
        result: Any = replace(RankResult.of(measured(ended), **facts), steps=steps.count)
        emit(result)  # to the process that waits for the result of this one
        end_process(ended.code)

    steps.end_process = lambda: end_here(Ended())
    log = _output_in_file(rank)
    folder = os.path.dirname(log)
    with _working_folder(config), numbers_logged(folder) as logged:
        place = os.getcwd()
        files = FileUse(place, folder, [place if config.own_folder else "", str(tree or "")])
        with utilization, steps.counted():
            ended = run_to_end(program, words, end_here)
        return measured(ended)


def _become_fresh_process(config: ScriptConfig, rank: RankInfo) -> Meeting | None:
    """Give this fork of a server what a new interpreter has, and more than one rank what torchrun gives them.

    Returns:
        Where the ranks meet; None at world size 1.
    """
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    os.environ |= config.variables()
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


def _output_in_file(rank: RankInfo) -> str:
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
    repository: Path | None, ended: Ended, steps: ScriptSteps, rank: RankInfo, log: str, is_told: bool
) -> tuple[Outcome, str]:
    """The outcome of a run, and why it is not ok.

    Args:
        repository: that of a revision; None for the files as they are.
        ended: how the script ended.
        steps: those that it made.
        rank: this rank.
        log: the file with what it printed.
        is_told: whether it printed a number that the user asks for: steps that are not seen are no failure then.
    """
    if ended.error is not None and not steps.is_at_end:
        failed = failure(ended.error, rank)
        place = place_in_program(ended.error)
        reason = f"{failed.reason} ({place})" if place else failed.reason
        if isinstance(ended.error, KeyError) and ended.error.args[0] in VARIABLES:
            reason += "; without ranks as torchrun has them: leave world size 1 out, or set the variables by --env"
        if "no known parent package" in reason:
            reason += "; a module of a package is run by its name: dmls-ray sweep -m package.train"
        return failed.outcome, reason
    if ended.replaced and not steps.is_at_end:
        return Outcome.ERROR, ended.replaced
    for number, loss in enumerate(steps.ledger.losses.values, 1):
        if loss is not None and not math.isfinite(loss):
            return Outcome.DIVERGED, f"the loss of step {number} is not finite"
    if ended.code and not steps.is_at_end:
        # Not with what it printed in training, which differs in each run: equal failures have equal reasons.
        said = last_exception_in(log) or ("" if steps.count else last_line_of(log))
        return Outcome.ERROR, f"exit code {ended.code} after {steps.count} steps{said and f': {said}'}"
    if not steps.count and rank.world_size == 1 and not is_told:
        return Outcome.ERROR, _without_steps(rank, last_line_of(log))
    if as_they_are := imported_as_they_are(repository) if repository is not None else []:
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
