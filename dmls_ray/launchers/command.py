"""Run a configuration as a command: start it, follow its events, and end it if it takes too long. Loads no PyTorch.

Ray's worker group leases ranks that are already running; this starts an interpreter per rank for each run, as
`python train.py`, torch.multiprocessing, torchrun and mpirun do.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.base import JobFolder, LaunchedJob, launcher
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import ArtifactOptions, Emit
from dmls_ray.util.files import TemporaryFolder

PARENT = "DMLS_RAY_PARENT"
"""Environment variable with the pid of the process that wants the result; the run ends with it."""

RUN = "DMLS_RAY_RUN"
"""Environment variable with the folder of the run: it shows which processes belong to the run."""

SAFE_PATH, OURS = "PYTHONSAFEPATH", "until a job has started"
"""With this variable, a new process does not look into the working folder first: a module of the user named queue is
none of the packages that it loads before its job."""

_PACKAGE = str(Path(__file__).parents[2])
"""Folder from which dmls_ray is imported."""

_KILL_TIMEOUT_S = 10.0
"""How long killed processes may take to end; one that waits in the kernel for a device or a network disk does not."""

_POLL_INTERVAL_S = 0.05

_LOG_LINES = 15
"""Last lines of the command's output that are reported for a rank without a result."""


def run_command(
    config: RuntimeConfig,
    *,
    train: str,
    identity: Identity | None = None,
    artifacts: ArtifactOptions | None,
    path: Sequence[str],
    cwd: str,
    emit: Emit,
    end_reason: Callable[[], str],
) -> list[RankResult]:
    """Run a configuration under its launcher; returns the results of its ranks, in their order.

    Args:
        config: the configuration; its launcher is not ray.
        train: `module:function` of the training function.
        identity: the code and the data of the run.
        artifacts: files that the run leaves next to its record.
        path: `module_path` of the driver.
        cwd: working folder, if it exists on this machine.
        emit: takes rank 0's events.
        end_reason: called now and then; a reason it returns ends the run.
    """
    with TemporaryFolder("run") as path_of_run:
        folder = JobFolder(path_of_run)
        # Last, although PYTHONPATH has this package first.
        folder.write_job(LaunchedJob(config, train, identity or Identity(), artifacts, [*path, _PACKAGE]))
        command = launcher(config.launcher).command(config, ["-m", "dmls_ray.launchers", str(path_of_run)])
        with open(folder.log_file, "wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(path_of_run),
                cwd=cwd if os.path.isdir(cwd) else None,
            )

        try:
            while process.poll() is None:
                folder.pass_on_events(emit)
                if end_reason():
                    break
                time.sleep(_POLL_INTERVAL_S)
        finally:
            _end_processes(path_of_run, process)

        folder.pass_on_events(emit)
        log_lines = folder.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        return [folder.read_result(rank) or _no_result(rank, process, log_lines) for rank in range(config.world_size)]


def _environment(path_of_run: Path) -> Mapping[str, str]:
    paths = [path for path in (_PACKAGE, os.environ.get("PYTHONPATH")) if path]
    # All ranks are on this machine; by default gloo takes the interface of the host name.
    of_run = {PARENT: str(os.getpid()), RUN: str(path_of_run), "PYTHONPATH": os.pathsep.join(paths)}
    loopback: dict[str, str] = {}
    for interface, addresses in psutil.net_if_addrs().items():
        if any(address.address == "127.0.0.1" for address in addresses):
            loopback.setdefault("GLOO_SOCKET_IFNAME", interface)
    return {**loopback, SAFE_PATH: OURS, **os.environ, **of_run}


def _end_processes(path_of_run: Path, command: subprocess.Popen[bytes]) -> None:
    """End all processes of a run, also those whose parent has died, so that they are no children of the command."""
    until = time.monotonic() + _KILL_TIMEOUT_S
    alive: set[psutil.Process] = set()
    # A process that gives back its memory has no environment any more, so it is looked at until it has ended.
    while alive := {*[process for process in alive if _is_alive(process)], *_processes_of(path_of_run, command)}:
        if time.monotonic() > until:
            break
        for member in alive:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                member.kill()
        time.sleep(_POLL_INTERVAL_S)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _processes_of(path_of_run: Path, command: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found = []
    if command.poll() is None:
        root = psutil.Process(command.pid)
        # A process that shows another title may have lost its environment.
        found += [*root.children(recursive=True), root]
    for process in psutil.process_iter():
        # Processes of other users cannot be examined, and zombies have no environment.
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(RUN) == str(path_of_run):
                found.append(process)
    return found


def _no_result(rank: int, process: subprocess.Popen[bytes], log_lines: list[str]) -> RankResult:
    ended = f"ended with exit code {process.returncode}"
    if process.returncode is None:
        ended = f"(pid {process.pid}) does not end although it was killed: does it wait for a device or a drive?"
    return RankResult(
        rank=rank,
        outcome=Outcome.KILLED,
        reason=f"rank {rank} left no result, and its command {ended}",
        traceback="\n".join(log_lines),
    )
