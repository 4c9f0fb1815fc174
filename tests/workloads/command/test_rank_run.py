"""Runs of commands, each in a fork of a server as a rank runs it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import Progress, RankResult
from dmls_ray.training.child_run import run_in_child
from dmls_ray.training.rank import ArtifactOptions, RankInfo
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.workloads.command.workload import CommandWorkload

ENTRY = CommandWorkload.entrypoint


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer("dmls_ray.training.rank:preload", ENTRY)
    yield server
    server.close()


class Runner:
    """Runs commands in the working folder."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.events: list[Any] = []

    def run(self, *words: str, revision: str = ".", patterns: dict[str, str] | None = None, **given: Any) -> RankResult:
        variables = {name: value for name, value in given.items() if name.isupper()}
        workload = CommandWorkload(words[0], words[1:], variables=variables, patterns=patterns)
        config = workload.schema().make(revision=revision, **given)
        rank = RankInfo(name=f"{self.folder}", artifacts=ArtifactOptions(folder=str(self.folder)))
        results: list[RankResult] = []
        own = run_in_child(self.server, ENTRY, config, rank, rank.name, self.events.append, results.append)
        return results[0] if own is None else own

    @property
    def log(self) -> str:
        return (self.folder / "rank0.log").read_text()


@pytest.fixture
def runner(server: ForkServer, repository: Path, tmp_path: Path) -> Runner:
    return Runner(server, tmp_path)


def test_a_command_has_the_files_the_folder_and_the_seed_of_its_run_and_its_last_numbers_are_read(
    runner: Runner, repository: Path
) -> None:
    patterns = {"score": r"score (\S+)", "missing": r"missing (\d+)"}
    given = {"patterns": patterns, "seed": 7, "LIBRARIES": "a"}
    for revision, text in (("before", "old"), ("after", "new")):
        result = runner.run("./bench.sh", "{seed}", "x y", revision=revision, **given)
        assert result.outcome is Outcome.OK, result.reason
        assert f"score 2.5 of {text} seed 7 lib a words 7 x y" in runner.log
        assert result.run.reported == {"score": 2.5, "rate": 40}
        assert result.run.metrics["exit_code"] == 0
    assert not (repository / "written.txt").exists()


def test_its_time_is_that_of_the_command_and_no_memory_is_told(runner: Runner) -> None:
    result = runner.run("sleep", "0.3")
    assert 0.3 <= result.metrics["total_s"] < 0.45
    assert result.metrics["instruments_s"] > 0
    assert not [name for name in result.metrics if "mem" in name or "mib" in name]


def test_a_command_that_fails_is_an_error_with_its_last_line(runner: Runner) -> None:
    result = runner.run("sh", "-c", "echo first; echo 'cannot open it' >&2; exit 7")
    assert (result.outcome, result.reason) == (Outcome.ERROR, "exit code 7: cannot open it")
    result = runner.run("sh", "-c", "kill -9 $$")
    assert (result.outcome, result.reason) == (Outcome.ERROR, "exit code -9")


def test_what_a_command_has_started_ends_with_its_run(runner: Runner) -> None:
    result = runner.run(
        "sh", "-c", "setsid sleep 300 >/dev/null 2>&1 & echo process $!", patterns={"pid": r"process (\d+)"}
    )
    number = int(result.run.reported.get("pid") or result.run.reported["measured_pid"])
    ends_at = time.monotonic() + 10
    while psutil.pid_exists(number) and psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < ends_at
        time.sleep(0.05)


def test_paths_in_lists_of_folders_are_those_of_the_copy(
    runner: Runner, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "tools").mkdir()
    (repository / "tools" / "tool").write_text("#!/bin/sh\necho from $0\n")
    (repository / "tools" / "tool").chmod(0o755)
    path = os.pathsep.join([os.environ["PATH"], str(repository / "tools")])
    result = runner.run("sh", "-c", "tool", PATH=path)
    assert result.outcome is Outcome.OK, result.reason
    place = runner.log.removeprefix("from ").strip()
    assert place.endswith("/0/tools/tool")
    assert not Path(place).is_relative_to(repository)


def test_progress_is_told_while_a_command_prints(runner: Runner) -> None:
    runner.run("sleep", "2.5")
    assert runner.events == []
    runner.run("sh", "-c", "for i in 1 2 3 4 5; do echo $i; sleep 0.5; done")
    assert runner.events
    assert all(isinstance(event, Progress) for event in runner.events)
