"""Every launcher runs the same training function to the same losses."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from dmls_ray.config.identity import Identity
from dmls_ray.launchers import command, mpirun
from dmls_ray.launchers.base import JobFolder, LaunchedJob, infeasible_reason
from dmls_ray.launchers.command import run_command
from dmls_ray.launchers.spawn import Spawn
from dmls_ray.records.run_events import EpochEnded, RankEvent, RankResult
from dmls_ray.training.rank import ArtifactOptions
from dmls_ray.workloads.classification.config import TrialConfig
from tests.conftest import PROJECT, SMALL
from tests.new_processes import run_inline, run_spawned

MPI = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpirun needs pip install 'dmls_ray[mpi]'")
METRICS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def config(launcher: str, **changes: Any) -> TrialConfig:
    base = {"dataset": SMALL, "batch_per_rank": 8, "epochs": 2, "device": "cpu", "dropout": 0.3}
    return TrialConfig(**{**base, "launcher": launcher, **changes})


def run(trial: TrialConfig, **options: Any) -> list[RankResult]:
    settings: dict[str, Any] = {
        "train": "dmls_ray.workloads.classification.train:train_rank",
        "artifacts": None, "path": [str(PROJECT)], "cwd": ".", "emit": lambda event: None,
        "end_reason": lambda: "",
    }  # fmt: skip
    return run_command(trial, **{**settings, **options})


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def metrics(ranks: list[RankResult]) -> list[tuple[float, ...]]:
    assert [rank.outcome for rank in ranks] == ["ok"] * len(ranks), ranks
    return [tuple(epoch.metrics[name] for name in METRICS) for epoch in ranks[0].run.epochs]


@pytest.mark.slow
def test_torchrun_gives_the_losses_of_spawned_ranks_and_emits_its_epochs(tmp_path: Path) -> None:
    events: list[RankEvent] = []
    trial = config("torchrun", world_size=2)
    artifacts = ArtifactOptions(folder=str(tmp_path), weights=True)
    expected = metrics(run(trial, emit=events.append, artifacts=artifacts))
    assert expected == metrics(run_spawned(trial))
    epochs = [event.epoch for event in events if isinstance(event, EpochEnded)]
    assert [tuple(epoch.metrics[name] for name in METRICS) for epoch in epochs] == expected
    assert (tmp_path / "weights.pt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "changes"),
    [
        ("inline", {}),
        ("spawn", {"world_size": 2}),
        ("torchrun", {}),
        pytest.param("mpirun", {}, marks=MPI),
        pytest.param("mpirun", {"world_size": 2, "backend": "gloo"}, marks=MPI),
        pytest.param("mpirun", {"world_size": 2, "backend": "mpi"}, marks=MPI),
        pytest.param("mpirun", {"world_size": 2, "backend": "mpi", "zero_redundancy": True}, marks=MPI),
        pytest.param("mpirun", {"world_size": 2, "backend": "mpi", "batch_norm": "on", "accum_steps": 2}, marks=MPI),
    ],
)
def test_every_launcher_gives_the_same_losses(launcher: str, changes: dict[str, Any]) -> None:
    trial = config(launcher, **changes)
    plain = trial.replace(backend="auto", launcher="ray")
    alone = [run_inline(plain)] if trial.world_size == 1 else run_spawned(plain)
    assert metrics(run(trial)) == metrics(alone)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["inline", "spawn", "torchrun", pytest.param("mpirun", marks=MPI)])
def test_the_clock_of_a_run_begins_when_its_ranks_have_loaded_pytorch_under_every_launcher(launcher: str) -> None:
    trial = config(launcher, world_size=1 if launcher == "inline" else 2)
    results = run(trial, train="tests.training.probes:report_start")
    assert [result.outcome for result in results] == ["ok"] * trial.world_size, results
    for result in results:
        start = result.run.reported["returned"]
        assert 0 <= start["called_s"] < start["loading_s"] / 2, "loading PyTorch takes seconds"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["spawn", "torchrun", pytest.param("mpirun", marks=MPI)])
def test_every_launcher_gives_its_ranks_the_environment_of_torchrun(launcher: str) -> None:
    trial = config(launcher, world_size=2, threads_per_rank=1)
    results = run(trial, train="tests.training.probes:train_and_return_environment")
    assert [result.outcome for result in results] == ["ok", "ok"], results
    for number, result in enumerate(results):
        environment = result.run.reported["returned"]
        assert environment.pop("MASTER_PORT").isdecimal()
        assert environment.pop("MASTER_ADDR") in ("127.0.0.1", "localhost", socket.gethostname())
        expected = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "OMP_NUM_THREADS": 1}
        assert environment == {name: str(value) for name, value in expected.items()}


@MPI
@pytest.mark.slow
@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compressed_gradients_converge_over_mpi(compression: str) -> None:
    trial = config("mpirun", world_size=2, backend="mpi", compression=compression, dataset="digits", dropout=None)
    (first, *_, last) = metrics(run(trial.replace(epochs=6)))
    assert last[2] < 0.5 * first[2]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["spawn", "torchrun", pytest.param("mpirun", marks=MPI)])
@pytest.mark.parametrize(("model", "outcome"), [("raising", "error"), ("dying", "killed")])
def test_a_rank_that_fails_ends_the_run_and_leaves_no_process(launcher: str, model: str, outcome: str) -> None:
    before = children()
    results = run(config(launcher, world_size=2, model=f"tests.training.probes:{model}", dropout=None))
    assert {outcome} <= {rank.outcome for rank in results} <= {"error", "killed"}
    assert not children() - before


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["inline", "torchrun"])
def test_a_run_that_is_overdue_is_ended_with_all_its_processes(launcher: str) -> None:
    until, before = time.monotonic() + 6, children()
    results = run(config(launcher, epochs=1_000_000), end_reason=lambda: "too long" if time.monotonic() > until else "")
    assert [rank.outcome for rank in results] == ["killed"]
    assert not children() - before


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["spawn", "torchrun", pytest.param("mpirun", marks=MPI)])
@pytest.mark.parametrize("stopped", [False, True])
def test_ranks_end_with_their_killed_agent(
    launcher: str, stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKS", str(tmp_path))
    started: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            started.append(self)

    def kill_agent() -> None:
        while len(ranks := [int(mark.name) for mark in tmp_path.iterdir()]) < 2:
            time.sleep(0.05)
        if stopped:
            os.kill(ranks[0], signal.SIGSTOP)
        started[0].kill()

    monkeypatch.setattr(command.subprocess, "Popen", Popen)
    threading.Thread(target=kill_agent, daemon=True).start()
    results = run(config(launcher, world_size=2), train="tests.training.probes:leave_mark_and_wait")
    assert {item.outcome for item in results} == {"killed"}
    until = time.monotonic() + 10  # a rank that ends by itself takes a while to give back its memory
    while alive := [mark.name for mark in tmp_path.iterdir() if is_alive(int(mark.name))]:
        assert time.monotonic() < until, alive
        time.sleep(0.05)


@pytest.mark.slow
def test_a_rank_ends_at_once_with_the_process_that_wants_its_result(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    folder.write_job(
        LaunchedJob(
            config("inline"),
            "tests.training.probes:leave_mark_and_wait",
            Identity(),
            None,
            [str(PROJECT)],
        )
    )
    marks = tmp_path / "marks"
    marks.mkdir()
    with subprocess.Popen(["sleep", "600"]) as parent:
        environment = {**os.environ, command.PARENT: str(parent.pid), "MARKS": str(marks), "PYTHONPATH": str(PROJECT)}
        words = [sys.executable, "-m", "dmls_ray.launchers", str(tmp_path)]
        with subprocess.Popen(words, env=environment) as rank:
            while not list(marks.iterdir()):
                time.sleep(0.05)
            parent.kill()
            assert rank.wait(timeout=30) == 1


def test_what_a_run_leaves_running_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKS", str(tmp_path))
    code = (
        "import os, pathlib, subprocess\n"
        "left = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "pathlib.Path(os.environ['MARKS'], str(left.pid)).touch()"
    )
    monkeypatch.setattr(Spawn, "command", lambda self, trial, program: [sys.executable, "-c", code])
    run(config("spawn"))
    (pid,) = (int(mark.name) for mark in tmp_path.iterdir())
    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_run_whose_process_does_not_end_although_it_was_killed_has_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    # As one that waits for a network drive which is gone.
    started: list[subprocess.Popen[bytes]] = []

    def cannot_end(path_of_run: Path, process: subprocess.Popen[bytes]) -> None:
        started.append(process)

    monkeypatch.setattr(command, "_end_processes", cannot_end)
    (rank,) = run(config("spawn"), end_reason=lambda: "cancelled")
    (process,) = started
    process.kill()
    process.wait()
    assert rank.outcome == "killed"
    assert f"its command (pid {process.pid}) does not end although it was killed" in rank.reason


def test_the_job_of_a_command_lies_in_a_private_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a pickle, so who could write it could run code as this user."""
    seen: list[tuple[str, int, int]] = []

    def look(self: Spawn, trial: TrialConfig, program: list[str]) -> list[str]:
        folder = Path(program[-1])
        seen.append((folder.name, folder.stat().st_mode & 0o777, (folder / "job.pickle").lstat().st_uid))
        return [sys.executable, "-c", ""]

    monkeypatch.setattr(Spawn, "command", look)
    before = os.umask(0)
    try:
        run(config("spawn"))
        run(config("spawn"))
    finally:
        os.umask(before)
    assert {(mode, owner) for _, mode, owner in seen} == {(0o700, os.getuid())}
    assert seen[0][0] != seen[1][0]


def test_without_mpi_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun, "mpiexec", lambda: None)
    assert "pip install 'dmls_ray[mpi]'" in infeasible_reason(config("mpirun"))
    assert not infeasible_reason(config("torchrun"))
