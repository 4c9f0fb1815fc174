"""Each flag that --help-all lists, given once: it is accepted, or refused in one line before Ray starts."""

from __future__ import annotations

import argparse
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dmls_ray.cluster.tune.run_jobs
import dmls_ray.cluster.worker_group
from dmls_ray.cli.sweep_flags import SweepParser
from dmls_ray.cluster.resources import Machine, Resources
from dmls_ray.cluster.tune.trainables import TuneJobSet
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult, RunFinished, RunStarted, Verdict
from tests.conftest import SMALL, Command
from tests.run_results import run_of

FUNCTION = """
from dataclasses import dataclass

@dataclass
class Config:
    batch_size: int = 16
    workers: int = 0

def train(config: Config, rank, emit): ...
"""
SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--workers", type=int, default=0)
parser.parse_args()
"""
COMMANDS = {
    "sweep of a workload": "sweep grid",
    "sweep of a function": "sweep own_train:train",
    "sweep of a script": "sweep train.py",
    "tune": "tune own_train:train",
    "doctor": "doctor train.py",
    "largest": "sweep own_train:train --batch-size max 16",
}
VALUES = {
    "--address": "192.0.2.1:6379",
    "--data-dir": ".",
    "--dataset": SMALL,
    "--early-stopping": "test_loss",
    "--env": "NAME=1",
    "--equivalent": "1%",
    "--flag": "loader-workers=--workers",
    "--lanes": "2",
    "--log-range": "workers 1 2",
    "--metric": "train_loss",
    "--metric-regex": "loss loss=(.*)",
    "--model": "simplecnn",
    "--out": "elsewhere",
    "--preload": "psutil",
    "--range": "workers 1 2",
    "--repeats": "3",
    "--steps": "20",
    "--revision": "first",
    "--samples": "batch_size",
    "--searcher": "random",
    "--seed-flag": "batch_size",
    "--set": "workers 1",
    "--share": "train.py",
    "--train": "own_train:train",
    "--workload": "classification",
}
"""Flag -> a value, where its type does not say one."""
BY_METAVAR = {"INT": "2", "FLOAT": "0.25", "TIME": "90s", "SHARE": "3%"}


class StartedError(BaseException):
    """Ray would start now."""


HERE = Resources((Machine("here", "1", 4, 0),))


class FakeRay:
    """Stands in for Ray and for all that runs on it."""

    is_private = True

    def __init__(self) -> None:
        self.is_started = False
        self.ends_at_start = False

    def session(self, *_: object, **__: object) -> FakeRay:
        return self

    @contextmanager
    def connected(self) -> Iterator[Resources]:
        self.is_started = True
        if self.ends_at_start:
            raise StartedError
        yield HERE

    def check(self) -> bool:
        return True

    def end_workers(self) -> bool:
        return True


class FakeGroup:
    """Ranks that nobody has started."""

    def __init__(self, resources: Resources, *_: object, **__: object) -> None:
        self.resources, self.ranks, self.lanes, self.shares_machines = resources, 1, 1, False

    def end_block(self, block: int) -> None: ...

    def __enter__(self) -> FakeGroup:
        return self

    def __exit__(self, *_: object) -> None: ...

    def serves_as(self, other: FakeGroup) -> bool:
        return True


def run_jobs(group: FakeGroup, trials: TuneJobSet, listen: Callable[..., None], **_: object) -> None:
    """End each run ok; a run with workers is the faster one."""
    chance = random.Random(0)
    for run_id in trials.run_ids or ():
        job = trials.job_of({"run_id": run_id})
        step_s = chance.uniform(0.00999, 0.01001) / (1 + min(job.config.canonical().get("workers", 0), 1))
        values = {"total_s": 100 * step_s, "train_s": 100 * step_s, "step_ms_mean": 1000 * step_s}
        run = run_of({"steps": 100, "samples_per_step": 16, "samples_per_s": 16 / step_s})
        run.reported["steps_per_s"] = 1 / step_s
        results = tuple(RankResult(rank=rank, metrics=values, run=run) for rank in range(job.config.world_size))
        listen({"run_id": run_id}, RunStarted(attempt=1))
        listen({"run_id": run_id}, RunFinished(verdict=Verdict(outcome=Outcome.OK), attempts=1, results=results))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setattr("dmls_ray.cluster.held_group.RaySession", fake.session)
    monkeypatch.setattr("dmls_ray.cluster.held_group.cluster_at", lambda address: None)
    monkeypatch.setattr("dmls_ray.cluster.held_group.cluster_resources", lambda: HERE)
    monkeypatch.setattr(dmls_ray.cluster.worker_group, "WorkerGroup", FakeGroup)
    monkeypatch.setattr(dmls_ray.cluster.tune.run_jobs, "run_jobs", run_jobs)
    one_core = Resources((Machine("here", "", 1, 0),))
    monkeypatch.setattr("dmls_ray.cli.tune.local_resources", lambda: one_core)
    # Hundreds of runs are kept.
    monkeypatch.setattr("dmls_ray.execution.run_plan._write_derived", lambda *_, **__: None)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    return fake


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working folder with a function, a script, and a repository of two revisions."""
    (tmp_path / "own_train.py").write_text(FUNCTION)
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    git = ("git", "-c", "user.name=test", "-c", "user.email=test@example.com")
    for words in ("init -q", "add .", "commit -qm one", "tag first", "commit -q --allow-empty -m two", "tag second"):
        subprocess.run([*git, *words.split()], check=True, capture_output=True)
    return tmp_path


def flags_of(words: list[str], typed: Command, monkeypatch: pytest.MonkeyPatch) -> list[argparse.Action]:
    """The flags that --help-all of a command lists."""
    found: list[argparse.Action] = []
    with monkeypatch.context() as patch:
        patch.setattr(SweepParser, "error", lambda parser, message: pytest.fail(message))
        patch.setattr(argparse.ArgumentParser, "format_help", lambda parser: found.extend(parser._actions) or "")
        assert typed(*words).returncode == 0
    return found


def words_of(flag: argparse.Action) -> list[str]:
    """A flag with a value that is not its default."""
    name = flag.option_strings[-1]
    if flag.nargs == 0:
        return [name]
    value = VALUES.get(name)
    metavar = str(flag.metavar)
    if value is None and (flag.choices or metavar.startswith("{")):
        values = [*flag.choices] if flag.choices else metavar.strip("{}").split(",")
        value = next(item for item in values if f"(default: {item})" not in str(flag.help))
    return [name, *(value or BY_METAVAR[metavar]).split()]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_flag_is_accepted_or_refused_by_its_name_before_ray_starts(
    command: str, ray: FakeRay, folder: Path, typed: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = COMMANDS[command].split()
    # The other commands plan all of their runs before the first.
    ray.ends_at_start = command not in ("tune", "largest")
    flags = flags_of([*words, "--help-all"], typed, monkeypatch)
    assert len(flags) > 40
    wrong = {}
    accepted = []
    for flag in flags:
        if flag.dest in ("help", "help_all"):
            continue
        name, *value = given = words_of(flag)
        out = [] if flag.dest == "out" else ["--out", f"results/{flag.dest}"]
        ray.is_started = False
        try:
            done = typed(*words, *given, *out)
        except StartedError:
            accepted.append(name)
            continue
        if done.returncode != 2:
            accepted.append(name)
            continue
        is_one_line = len(done.stderr.splitlines()) == 1
        is_named = any(word in done.stderr for word in (name, flag.dest, *value[:1]))
        if ray.is_started or not is_one_line or not is_named:
            wrong[name] = done.stderr
    assert wrong == {}
    assert accepted.count("--within") == accepted.count("--seed") == 1


def test_the_simulated_search_for_settings_comes_to_its_races(ray: FakeRay, folder: Path, typed: Command) -> None:
    done = typed("tune", "own_train:train", "--within", "2%")
    assert done.returncode == 0, done.stderr
    assert "workers=1 2.00x" in done.stdout


def test_nothing_starts_where_no_run_is_possible(ray: FakeRay, folder: Path, typed: Command) -> None:
    assert typed("tune", "own_train:train", "--backend", "nccl", "--device", "cpu").returncode == 2
    done = typed("sweep", "own_train:train", "--batch-size", "max", "--world-size", "99")
    assert done.returncode == 2
    assert "batch_size max: no run is possible: world_size=99 does not fit" in done.stderr
    assert not ray.is_started


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("tune own_train:train --search", "--search: tune searches by itself"),
        ("tune own_train:train --race --aim memory", "--race --aim memory: tune always races"),
        ("tune own_train:train --range workers 0 2", "--range workers 0 2: tune starts from one value; give one."),
        ("ab first second --search -- sweep train.py", "--search: runs share the machine"),
        ("sweep own_train:train --env A=1", "--env A=1 is for a script"),
        ("sweep own_train:train --metric-regex a b", "--metric-regex a is for what a script prints"),
    ],
)
def test_a_flag_that_says_nothing_to_a_command_is_refused(
    words: str, line: str, ray: FakeRay, folder: Path, typed: Command
) -> None:
    done = typed(*words.split())
    assert done.returncode == 2
    assert line in done.stderr
    assert not ray.is_started
