"""A search through Ray: runs side by side, poor ones stopped, and a searcher that proposes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.cluster.tune.trainables import reported_metric
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RankResult, RunFinished, RunResult, Verdict
from tests.conftest import PROJECT, SMALL, Command

FLAGS = ("--dataset", SMALL, "--device", "cpu", "--oversubscribe", "--batch-per-rank", "8")


def test_the_metric_of_an_event_is_in_it_or_the_last_reported() -> None:
    assert reported_metric(EpochEnded(epoch=EpochRecord(epoch=1, metrics={"test_loss": 0.5})), "test_loss") == 0.5
    assert reported_metric(EpochEnded(epoch=EpochRecord(epoch=1, metrics={"bits": 2})), "bits") == 2
    assert (
        reported_metric(EpochEnded(epoch=EpochRecord(epoch=1, metrics={"test_loss": float("nan")})), "test_loss", 0.7)
        == 0.7
    )
    verdict = Verdict(outcome=Outcome.OK)
    results = tuple(RankResult(rank=rank, run=RunResult(reported={"bits": bits})) for rank, bits in enumerate((1.5, 9)))
    assert reported_metric(RunFinished(verdict=verdict, results=results), "bits", 2) == 1.5
    assert reported_metric(RunFinished(verdict=verdict), "bits", 2) == 2


def spans(records: list) -> list[tuple[float, float]]:  # type: ignore[type-arg]
    from datetime import datetime

    starts = [datetime.fromisoformat(record.started_at).timestamp() for record in records]
    return sorted((start, start + record.metrics["total_s"]) for start, record in zip(starts, records, strict=True))


@pytest.mark.slow
def test_a_search_fills_the_ranks_stops_poor_runs_and_leaks_no_rank(sweep_command: Command, tmp_path: Path) -> None:
    grid = ("--lr", "0.00001", "0.0001", "0.001", "0.003", "0.01", "0.03", "--world-size", "1", "2", "--epochs", "6")
    done = sweep_command("search", *FLAGS, *grid, "--optimizer", "adam", "--dropout", "0.1", "--searcher", "grid")
    assert done.returncode == 0, done.stderr
    results = load(tmp_path / "results" / "search")
    assert [record.outcome.value for record in results.records] == ["ok"] * 12
    stopped = [record for record in results.records if record.metrics.get("stopped_epoch")]
    assert stopped
    for record in results.records:
        assert len(record.epochs) == (record.metrics.get("stopped_epoch") or 6)
        assert len(record.ranks) == record.config["world_size"]
        assert (record.mode, record.metrics.get("overhead_s")) == ("search", None)
    alone = [record for record in results.records if record.config["world_size"] == 1]
    assert any(earlier[1] > later[0] for earlier, later in itertools.pairwise(spans(alone))), "none went side by side"
    assert "images/s" not in done.stdout.partition("batch_per_rank")[2], "times side by side are no times"
    finished = len(results.records) - len(stopped)
    assert f"The highest test_accuracy of {finished} configuration" in done.stdout
    again = sweep_command("search", *FLAGS, *grid, "--optimizer", "adam", "--dropout", "0.1", "--searcher", "grid")
    assert again.returncode == 0
    assert "[ 1/" not in again.stdout, "a run that was stopped has ended"


@pytest.mark.slow
def test_a_run_that_goes_to_its_end_in_a_search_is_what_it_is_alone(sweep_command: Command, tmp_path: Path) -> None:
    flags = (*FLAGS, "--lr", "0.001", "0.01", "--epochs", "3", "--optimizer", "adam", "--dropout", "none")
    done = sweep_command("search", *flags, "--searcher", "grid", "--scheduler", "none")
    assert done.returncode == 0, done.stderr
    alone = sweep_command("grid", *flags, "--repeats", "1")
    assert alone.returncode == 0, alone.stderr
    searched, benched = (load(tmp_path / "results" / name).runs.set_index("run_id") for name in ("search", "grid"))
    assert searched.test_loss.to_dict() == benched.test_loss.to_dict()


@pytest.mark.slow
def test_optuna_proposes_runs_and_goes_on_where_it_was(sweep_command: Command, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    flags = (*FLAGS, "--searcher", "optuna", "--epochs", "2", "--optimizer", "adam", "sgd")
    first = sweep_command("search", *flags, "--trials", "4")
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "results" / "search"
    before = {record.run_id for record in load(folder).records}
    assert len(before) == 4
    done = sweep_command("search", *flags, "--trials", "7")
    assert done.returncode == 0, done.stderr
    records = load(folder).records
    assert len(records) == 7
    assert before < {record.run_id for record in records}
    assert sorted(record.order for record in records) == list(range(7))
    assert {record.config["optimizer"] for record in records} <= {"adam", "sgd"}
    assert all(1e-4 <= record.config["lr"] <= 1e-1 for record in records)
    # Which runs are stopped early depends on which of those that go side by side ends first.
    trained = sum(record.metrics.get("stopped_epoch") is None for record in records)
    assert f"of {trained or 7} configuration" in done.stdout
    nothing = sweep_command("search", *flags, "--trials", "7")
    assert nothing.returncode == 0
    assert "[1/" not in nothing.stdout


@pytest.mark.slow
def test_a_run_killed_in_a_search_is_tried_again_and_the_run_next_to_it_is_unharmed(
    sweep_command: Command, tmp_path: Path
) -> None:
    (tmp_path / "tests").symlink_to(PROJECT / "tests")
    models = ("--model", "tests.failing:steady", "tests.failing:sigkill_in_step_of_rank_0")
    flags = (*FLAGS, "--lr", "0.001", "0.01", "--epochs", "3", "--optimizer", "adam", "--dropout", "none")
    done = sweep_command("search", *flags, *models, "--searcher", "grid", "--max-retries", "1")
    assert done.returncode == 1, done.stderr
    records = load(tmp_path / "results" / "search").records
    outcomes = [(record.config["model"].rpartition(":")[2], record.outcome.value) for record in records]
    assert sorted(outcomes) == [("sigkill_in_step_of_rank_0", "killed")] * 2 + [("steady", "ok")] * 2
    assert all(record.attempts == 2 for record in records if record.outcome.value == "killed")


@pytest.mark.slow
def test_a_user_function_is_stopped_although_it_never_asks(sweep_command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def train(config, rank, emit):\n"
        "    for epoch in range(6):\n"
        "        emit({'score': config['level'] * (epoch + 1)})\n"
        "    return {'last': 1}\n"
    )
    done = sweep_command(
        "search", "--train", "mine:train", "--set", "level", "6", "5", "4", "3", "2", "1", "--searcher", "grid",
        "--metric", "score", "--device", "cpu", "--world-size", "1", "2", "--oversubscribe",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = load(tmp_path / "results" / "mine-train").records
    assert len(records) == 12
    stopped = [record for record in records if record.metrics.get("stopped_epoch")]
    assert stopped
    assert all("last" not in record.metrics for record in stopped)
    assert all(record.metrics["last"] == 1 for record in records if record not in stopped)
    assert f"The highest score of {12 - len(stopped)} configurations is 36" in done.stdout
