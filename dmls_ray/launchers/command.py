"""A run as a command of its own: started, followed, and ended where it takes too long. Loads no PyTorch.

Where Ray's worker group leases ranks that are there already, this starts an interpreter a rank for each run, as
`python train.py`, torch.multiprocessing, torchrun and mpirun do.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankEvent, RankResult
from dmls_ray.training.rank import ArtifactOptions, Emit

PARENT = "DMLS_RAY_PARENT"
"""Environment variable with the pid of the process without which nobody wants the result."""

EVENTS_FILE = "events.txt"

_LOOK_EVERY_S = 0.05
_LOG_LINES = 15
"""Last lines of what a command said that are told of a rank that left no result."""


def unavailable(config: RuntimeConfig) -> str:
    """Why the configuration's launcher cannot be used here, and the way out; empty where it can."""
    if config.launcher == "mpirun" and (_mpiexec() is None or importlib.util.find_spec("mpi4py") is None):
        return "launcher=mpirun needs mpi4py and an mpiexec: pip install 'dmls_ray[mpi]', or use launcher torchrun."
    return ""


def run_command(
    config: RuntimeConfig,
    *,
    train: str,
    artifacts: ArtifactOptions | None,
    path: list[str],
    cwd: str,
    emit: Emit,
    end_reason: Callable[[], str],
) -> list[RankResult]:
    """Run a trial under its launcher; returns the ranks' results, each with its `outcome`, in their order.

    Args:
        config: the trial; its launcher is not ray.
        train: `module:function` of the training function.
        artifacts: what the run leaves beside its record.
        path: where the user's modules are searched for first.
        cwd: where relative paths begin, where that folder is on this machine too.
        emit: takes rank 0's events.
        end_reason: called now and then; a reason it returns ends the run.
    """
    with tempfile.TemporaryDirectory(prefix="dmls_ray-run-") as name:
        folder = Path(name)
        (folder / "job.pickle").write_bytes(pickle.dumps((config, train, artifacts, path)))
        with open(folder / "log.txt", "wb") as log:
            process = subprocess.Popen(
                _command(config, folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
                cwd=cwd if os.path.isdir(cwd) else None,
            )  # fmt: skip
        events = _Messages(folder / EVENTS_FILE)
        try:
            while process.poll() is None:
                _pass_on(events, emit)
                if end_reason():
                    break
                time.sleep(_LOOK_EVERY_S)
        finally:
            _end(process)
        _pass_on(events, emit)
        log_lines = (folder / "log.txt").read_text(errors="replace").splitlines()[-_LOG_LINES:]
        results = []
        for rank in range(config.world_size):
            file = result_file(folder, rank)
            results.append(pickle.loads(file.read_bytes()) if file.exists() else _no_result(rank, process, log_lines))
        return results


def result_file(folder: Path, rank: int) -> Path:
    """The file with the pickled result of a rank."""
    return folder / f"rank-{rank}.pickle"


def _command(config: RuntimeConfig, folder: Path) -> list[str]:
    module = ["-m", "dmls_ray.launchers", str(folder)]
    count = str(config.world_size)
    if config.launcher == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, *module]
    if config.launcher == "mpirun":
        mpiexec = _mpiexec()
        assert mpiexec is not None
        # Under `-m mpi4py` an exception on one rank ends all; without, the others wait for ever.
        return [mpiexec, "-n", count, sys.executable, "-m", "mpi4py", *module]
    return [sys.executable, *module]


def _mpiexec() -> str | None:
    """The one beside this Python first: it belongs to the MPI that mpi4py came with."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec") or shutil.which("mpirun")


def _environment() -> Mapping[str, str]:
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    # Ranks on one machine need no other to hear them; by itself gloo takes the interface of the host's name.
    return {**_on_loopback(), **os.environ, PARENT: str(os.getpid()), "PYTHONPATH": os.pathsep.join(paths)}


def _on_loopback() -> Mapping[str, str]:
    for interface, addresses in psutil.net_if_addrs().items():
        if any(at.address == "127.0.0.1" for at in addresses):
            return {"GLOO_SOCKET_IFNAME": interface}
    return {}


def _pass_on(events: _Messages, emit: Emit) -> None:
    for event in events.new():
        emit(event)


def message_line(event: RankEvent) -> str:
    """An event as a line of `EVENTS_FILE`."""
    return pickle.dumps(event).hex() + "\n"


class _Messages:
    """The complete messages of a file that grows, one a line."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def new(self) -> list[RankEvent]:
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(self._at)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._at += len(whole) + len(newline)
        return [pickle.loads(bytes.fromhex(line.decode())) for line in whole.splitlines()]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and all it has started."""
    if process.poll() is None:
        family = psutil.Process(process.pid)
        for one in [*family.children(recursive=True), family]:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
    process.wait()


def _no_result(rank: int, process: subprocess.Popen[bytes], log_lines: list[str]) -> RankResult:
    return RankResult(
        rank=rank,
        outcome=Outcome.KILLED,
        reason=f"rank {rank} left no result, and its command ended with exit code {process.returncode}",
        traceback="\n".join(log_lines),
    )
