from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmls_ray.config.options import Options
from dmls_ray.execution import recorder as recorder_module
from dmls_ray.execution.planning import make_plan, plan_of
from dmls_ray.execution.recorder import Recorder, describe_session
from dmls_ray.records.codec import check_sweep_file
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import describe_git
from dmls_ray.records.run_events import RankResult, RunFinished, Verdict
from dmls_ray.storage.folder import read_sweep, write_sweep
from dmls_ray.workloads.registry import workload, workload_of_function
from tests.records.test_provenance import commit_all


@pytest.mark.parametrize(
    ("name", "axes"),
    [("classification", {"world_size": 1, "batch_per_rank": 16}), ("grayscale", {"implementation": ["numpy"]})],
)
def test_a_record_names_its_workload(name: str, axes: dict[str, object]) -> None:
    plan = make_plan(axes, schema=workload(name).schema())
    record = Recorder(plan, Options(), workload(name), session="").skipped(plan.runs[0])
    assert record.workload == name


@pytest.mark.parametrize(
    ("values", "clock", "overheads"),
    [
        # The time of instruments is no overhead.
        ({"total_s": 6.0, "instruments_s": 3.5}, [100.0, 110.0], [0.5]),
        # The driver learns of the first start late, which makes no negative time.
        ({"total_s": 1.0}, [100.0, 100.9, 102.0], [None, 0.1]),
    ],
)
def test_overhead_is_the_time_between_two_ends_that_no_run_took(
    values: dict[str, float], clock: list[float], overheads: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = workload("classification")
    plan = make_plan({"world_size": 1, "batch_per_rank": 16}, repeats=len(overheads), schema=chosen.schema())
    recorder = Recorder(plan, Options(), chosen, session="")
    monkeypatch.setattr(recorder_module.time, "monotonic", iter(clock).__next__)
    results = (RankResult(rank=0, metrics=dict(values)),)
    finished = RunFinished(verdict=Verdict(outcome=Outcome.OK), attempts=1, results=results, lane=1)
    for run, overhead_s in zip(plan.runs, overheads, strict=True):
        recorder.started(run, 1)
        metrics = recorder.finished(run, finished).metrics
        assert metrics.get("overhead_s") == pytest.approx(overhead_s)
        assert metrics.items() >= values.items()


def checkout(folder: Path, file: str) -> str:
    """Make a checkout with one file; return its commit."""
    folder.mkdir()
    (folder / file).write_text("def train(config: dict, rank, emit) -> dict:\n    return {}\n")
    commit_all(folder)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("place", ["module", "script", "notebook", "nowhere"])
def test_a_session_names_the_commit_of_the_users_code_next_to_that_of_this_package(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = checkout(tmp_path / "mine", "session_of_mine.py")
    main = SimpleNamespace() if place == "notebook" else SimpleNamespace(__file__=str(tmp_path / "script.py"))
    if place == "script":
        main.__file__ = str(tmp_path / "mine" / "session_of_mine.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path / "mine" if place == "notebook" else tmp_path)
    chosen, axes = workload("classification"), {"batch_per_rank": 16}
    if place == "module":
        monkeypatch.syspath_prepend(tmp_path / "mine")
        chosen, axes = workload_of_function("session_of_mine:train", {"lr": 1}), {"lr": 1}
    plan, _ = plan_of(axes, Options(), chosen)
    monkeypatch.delitem(sys.modules, "session_of_mine", raising=False)
    described = describe_session(plan, Options())
    assert described["git"] == describe_git()
    assert described["user_git"] == ({} if place == "nowhere" else {"commit": commit, "dirty": False, "changes": ""})
    check_sweep_file({"sessions": [described]})


def test_a_session_names_the_environment_also_where_a_value_is_no_utf_8(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NCCL_ALGO", os.fsdecode(b"Ring\xff"))
    chosen = workload("classification")
    plan = make_plan({"batch_per_rank": 16}, schema=chosen.schema())
    described = describe_session(plan, Options())
    write_sweep(tmp_path, {"sessions": [described]})
    assert read_sweep(tmp_path)["sessions"][0]["environment"]["NCCL_ALGO"] == "Ring\udcff"
