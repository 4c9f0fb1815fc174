from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dmls_ray import load
from dmls_ray.analysis.results import Results
from dmls_ray.cluster.resources import local_resources
from dmls_ray.config.options import Options
from dmls_ray.execution.executor import Executor
from dmls_ray.execution.jobs import remove_checkpoints, run_folder
from dmls_ray.execution.next_runs import NextRuns
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.supervisor import Heartbeat
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult, RunAborted, RunFinished, RunStarted, Verdict
from dmls_ray.storage.store import Store
from dmls_ray.util.errors import ClusterLostError, NotKeptError, WorkerGroupError
from tests.execution.test_run_plan import GRID, Notes


class View(Notes):
    """A view that keeps which runs have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []

    def event(self, *_: object) -> None:
        """A run goes on."""

    def done(self, run: Any, record: Any) -> None:
        self.ended.append(run.run_id)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    plan = make_plan({**GRID, "world_size": [1, 2]})
    options = Options(out=str(tmp_path), repeats=3, checkpoints=True)
    with Store(tmp_path) as store:
        state = NextRuns(plan, options, [], lambda: Results(tmp_path, []))
        executor = Executor(state, store, View(), Heartbeat())  # type: ignore[arg-type]
        executor._by_id = {run.run_id: run for run in plan.runs}
        yield executor


def end_run(executor: Executor, number: int, outcome: Outcome = Outcome.OK) -> str:
    """Pass the events of a run to the executor, as Ray Tune does."""
    run = executor.plan.runs[number]
    finished = RunFinished(
        verdict=Verdict(outcome=outcome), attempts=1, results=(RankResult(rank=0, metrics={"total_s": 1.0}),)
    )
    for event in (RunStarted(attempt=1), finished):
        executor._listen({"run_id": run.run_id}, event)
    return run.run_id


def test_a_run_that_cannot_be_written_is_not_shown_as_ended_and_ends_the_sweep(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = end_run(executor, 0)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(NotKeptError, match="No space left on device"):
            end_run(executor, 1)
    assert executor.view.ended == [first]  # type: ignore[attr-defined]
    assert [record.run_id for record in load(tmp_path).records] == [first]


def test_the_files_of_a_sweep_that_is_stopped_are_written_before_its_ranks_end(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Group:
        ranks, end_block, shares_machines = 1, None, False

        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> Group:
            return self

        def __exit__(self, *_: object) -> None:
            events.append("the ranks end")

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dmls_ray.cluster.worker_group.WorkerGroup", Group)
    monkeypatch.setattr("dmls_ray.cluster.tune.run_jobs.run_jobs", stopped)
    executor._on_stop = lambda: events.append("files are written")
    session = SimpleNamespace(is_private=True, end_workers=lambda: True)
    with pytest.raises(KeyboardInterrupt), executor._held:
        executor._run_on(session, local_resources(), executor.plan.runs)  # type: ignore[arg-type]
    assert events == ["files are written", "the ranks end"]


@pytest.mark.parametrize(("is_lost", "kind"), [(True, ClusterLostError), (False, WorkerGroupError)])
def test_a_run_that_no_rank_can_serve_ends_the_sweep(executor: Executor, is_lost: bool, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="the ranks are gone"):
        executor._listen(
            {"run_id": executor.plan.runs[0].run_id}, RunAborted(reason="the ranks are gone", is_lost=is_lost)
        )


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.DIVERGED, Outcome.OOM, Outcome.KILLED, Outcome.ERROR])
def test_checkpoints_stay_until_the_record_of_their_run_is_kept(
    executor: Executor, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = run_folder(executor.store.folder, executor.plan.runs[0].run_id) / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "3.rank-0.pt").touch()
    append = Store.append

    def look(self: Store, record: Any) -> None:
        assert (checkpoints / "3.rank-0.pt").exists()
        append(self, record)

    monkeypatch.setattr(Store, "append", look)
    end_run(executor, 0, outcome)
    assert checkpoints.exists() is not outcome.is_final(), "a run that is repeated resumes there"


def test_only_the_checkpoints_of_ranks_are_deleted_and_none_behind_a_link(tmp_path: Path) -> None:
    names = ("3.rank-0.pt", "3.rank-1.pt", "of_the_user.pt")
    for folder in (tmp_path / "a-0", tmp_path / "elsewhere"):
        (folder / "checkpoints").mkdir(parents=True)
        for name in names[: 2 if folder.name == "a-0" else 3]:
            (folder / "checkpoints" / name).touch()
    (tmp_path / "b-0").mkdir()
    (tmp_path / "b-0" / "checkpoints").symlink_to(tmp_path / "elsewhere" / "checkpoints")
    (tmp_path / "c-0").symlink_to(tmp_path / "elsewhere")
    for run_id in ("a-0", "b-0", "c-0", "absent"):
        remove_checkpoints(tmp_path / run_id)
    assert not (tmp_path / "a-0" / "checkpoints").exists()
    assert len(list((tmp_path / "elsewhere" / "checkpoints").iterdir())) == 3
    remove_checkpoints(tmp_path / "elsewhere")
    assert [path.name for path in (tmp_path / "elsewhere" / "checkpoints").iterdir()] == ["of_the_user.pt"]
