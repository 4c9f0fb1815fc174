from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.list_session_groups import Handler

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.tensorboard.writer import LiveTensorBoardWriter, TensorBoardWriter, run_name
from dmls_ray.records.aggregate import take_epochs
from dmls_ray.records.model import EpochRecord, RankRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import own_results, results

GRID = {"world_size": [1, 2], "batch_per_rank": [16, 32]}
VARIED = ("world_size", "batch_per_rank")
FIRST = "world_size=1 batch_per_rank=16 repeat=0"
REPORT = ("Train loss", "Train accuracy", "Test loss", "Test accuracy")
"""The names that report A has."""


def sweep(folder: Path, axes: dict[str, Any] | None = None, *, repeats: int = 1) -> Results:
    """Runs of three epochs with those of each rank."""
    made = results(axes or GRID, lambda values, repeat: 100.0, repeats=repeats).records
    for record in made:
        record.metrics["setup_s"] = 0.5
        take_epochs(record, [epoch_of(number) for number in (1, 2, 3)])
        record.ranks = []
        for rank in range(record.config["world_size"]):
            metrics = {"setup_s": 0.25, "total_s": 9.0, "tensor_mem_mib": 100.0 + rank}
            epochs = [rank_epoch_of(rank, number) for number in (1, 2, 3)]
            record.ranks.append(RankRecord(rank=rank, metrics=metrics, epochs=epochs))
    return Results(folder, made)


def epoch_of(number: int) -> EpochRecord:
    return EpochRecord(
        epoch=number,
        metrics={
            "train_s": 2.0, "eval_s": 1.0, "ended_s": 0.5 + 3.0 * number, "images": 100, "images_per_s": 50.0,
            "train_loss": 1 / number, "train_accuracy": 1 - 1 / (number + 1), "test_loss": 2 / number,
            "test_accuracy": 0.5 + number / 16,
        },
    )  # fmt: skip


def rank_epoch_of(rank: int, number: int) -> EpochRecord:
    metrics = {"train_s": 2.0, "ended_s": 0.25 + 2.0 * number, "train_loss": rank + 1 / number, "test_accuracy": 0.25}
    return EpochRecord(epoch=number, metrics=metrics)


def scalars(folder: Path) -> dict[str, list[Any]]:
    """The events of each scalar in a run's folder, as TensorBoard's own reader has them."""
    accumulator = EventAccumulator(str(folder)).Reload()
    return {tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]}


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The steps and values of each scalar."""
    return {tag: [(item.step, item.value) for item in items] for tag, items in scalars(folder).items()}


def files(board: Path) -> dict[str, bytes]:
    return {str(path.relative_to(board)): path.read_bytes() for path in board.rglob("*") if path.is_file()}


def write_tensorboard(made: Results, varied: Sequence[str]) -> Path:
    """Write all runs into the folder that is returned."""
    writer = TensorBoardWriter(made.folder / "tensorboard", varied)
    writer.write_all(made.records)
    return writer.folder


def test_each_rank_and_all_together_have_the_scalars_of_report_a_once_an_epoch(tmp_path: Path) -> None:
    board = write_tensorboard(sweep(tmp_path), VARIED)
    assert board == tmp_path / "tensorboard"
    run = board / "world_size=2 batch_per_rank=16 repeat=0"
    scalars_of = read(run)
    assert [step for tag in REPORT for step, _ in scalars_of[tag]] == [1, 2, 3] * 4
    assert scalars_of["Train loss"] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert scalars_of["Test accuracy"] == [(1, 0.5625), (2, 0.625), (3, 0.6875)]
    assert scalars_of["Images per second"] == [(1, 50.0), (2, 50.0), (3, 50.0)]
    assert read(run / "rank-0")["Train loss"] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert read(run / "rank-1")["Train loss"] == [(1, 2.0), (2, 1.5), (3, pytest.approx(4 / 3))]
    assert read(run / "rank-1")["Run/Tensor MiB"] == [(3, 101.0)]
    assert not (board / FIRST / "rank-1").exists()


def test_epochs_have_the_times_of_the_record(tmp_path: Path) -> None:
    board = write_tensorboard(sweep(tmp_path), VARIED)
    began = 1767323045.0  # 2026-01-02T03:04:05, UTC
    run, rank = scalars(board / FIRST), scalars(board / FIRST / "rank-0")
    times = [item.wall_time - began for item in (*run["Test loss"], *run["Run/Seconds"])]
    assert times == [3.5, 6.5, 9.5, 20.0], "set-up, and then training and test of each epoch; the run's end"
    assert rank["Train loss"][0].wall_time - began == 2.25


def test_a_run_that_ended_has_its_finite_results_and_a_skipped_one_has_no_files(tmp_path: Path) -> None:
    made = sweep(tmp_path)
    made.records[1].outcome, made.records[1].metrics["test_accuracy"] = Outcome.DIVERGED, float("nan")
    made.records[2].outcome, made.records[2].attempts = Outcome.SKIPPED, 0
    board = write_tensorboard(made, VARIED)
    names = [run_name(record, VARIED) for record in made.records]
    assert {path.name for path in board.glob("world_size*")} == {names[0], names[1], names[3]}, "skipped: never run"
    assert "Run/Test accuracy" not in read(board / names[1])
    scalars_of = read(board / names[3])
    assert scalars_of["Run/Test accuracy"] == [(3, 0.6875)]
    assert scalars_of["Run/Seconds"] == [(3, 20.0)]


def test_a_new_axis_renames_the_folders_and_leaves_files_of_others(tmp_path: Path) -> None:
    made = sweep(tmp_path)
    board = write_tensorboard(made, VARIED)
    foreign = [board / FIRST / "note.txt", board / "mine" / "event_file.out.tfevents.1.host.2.0"]
    foreign[1].parent.mkdir()
    for path in foreign:
        path.write_text("mine")
    more = sweep(tmp_path, {**GRID, "lr": [1e-3, 1e-2]})
    write_tensorboard(more, (*VARIED, "lr"))
    assert len(list(board.glob("world_size*lr=*"))) == 8
    left = {path for path in board.rglob("*") if path.is_file() and "lr=" not in str(path)}
    assert left == set(foreign)


def test_a_run_that_is_written_again_has_the_files_of_its_last_record(tmp_path: Path) -> None:
    made = sweep(tmp_path)
    write_tensorboard(made, VARIED)
    again = [record.replace(started_at="2026-01-02T03:05:00") for record in made.records[1:]]
    board = TensorBoardWriter(tmp_path / "tensorboard", VARIED)
    board.write_all([])
    for record in (*made.records[1:], *again):
        board.write(record)
    afterwards = write_tensorboard(Results(tmp_path / "after", again), VARIED)
    assert files(board.folder) == files(afterwards)


def so_far(record: RunRecord, epochs: list[EpochRecord]) -> RunRecord:
    """The record of a run that goes on after these epochs."""
    return record.replace(outcome=Outcome.KILLED, metrics={}, epochs=epochs, ranks=[])


@pytest.mark.parametrize("seen", [(1, 2), (1, 2, 3), (3,), (), (2, 3)])
def test_an_epoch_is_shown_while_its_run_goes_on_and_the_end_is_that_of_the_record(
    tmp_path: Path, seen: Sequence[int]
) -> None:
    made = sweep(tmp_path / "live")
    board = TensorBoardWriter(made.folder / "tensorboard", VARIED)
    board.write_all([])
    for record in made.records:
        epochs: list[EpochRecord] = []
        for number in seen:
            epochs.append(record.epochs[number - 1])
            board.write_last_epoch(so_far(record, epochs))
            shown = read(board.folder / run_name(record, VARIED))["Train loss"]
            assert [step for step, _ in shown] == [*seen][: len(epochs)]
        board.write(record)
        board.write(record)
    afterwards = write_tensorboard(Results(tmp_path / "after", made.records), VARIED)
    assert files(board.folder) == files(afterwards)


def test_custom_metrics_have_their_name_as_tag(tmp_path: Path) -> None:
    made = own_results({"width": [8, 16]}, lambda values, repeat: (1.5, {"bits": 2.5, "note": "a text"}), repeats=1)
    for record in made.records:
        record.epochs = [EpochRecord(epoch=number, metrics={"bits": number + 0.5}) for number in (1, 2, 1)]
    scalars_of = read(write_tensorboard(Results(tmp_path, made.records), ("width",)) / "width=8 repeat=0")
    assert scalars_of["bits"] == [(1, 1.5), (2, 2.5), (3, 1.5)], "steps rise where epochs are counted again from 1"
    assert scalars_of["Run/bits"] == [(3, 2.5)]
    assert not [tag for tag in scalars_of if "note" in tag]


def test_times_of_a_search_are_left_out(tmp_path: Path) -> None:
    made = sweep(tmp_path)
    for record in made.records:
        record.mode = "search"
    scalars_of = read(write_tensorboard(made, VARIED) / FIRST)
    assert {"Run/Test accuracy", "Run/Tensor MiB"} <= scalars_of.keys()
    assert not scalars_of.keys() & {"Images per second", "Run/Images per second", "Run/Seconds"}


def test_names_of_runs_are_safe_short_and_unique(tmp_path: Path) -> None:
    made = sweep(tmp_path)
    record = made.records[0]
    record.config = {**record.config, "model": "../a/b:c\n\x00\ud800 ü", "dataset": "x" * 300}
    assert run_name(record, ("model",)) == "model=..-a-b:c--- ü repeat=0"
    name = run_name(record, ("dataset",))
    assert len(name.encode()) < 255
    assert name.endswith(record.run_id)
    board = write_tensorboard(made, ())
    scalars_of = {path.name for path in board.glob("repeat=0*")}
    assert scalars_of == {"repeat=0", *(f"repeat=0 {item.trial_id}" for item in made.records[1:])}


def test_a_write_error_in_a_sweep_is_reported_once_and_the_sweep_goes_on(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("in the way")
    notes: list[str] = []
    board = LiveTensorBoardWriter(tmp_path, notes.append)
    board.write_all([])
    for record in sweep(tmp_path).records:
        board.write(record)
    (note,) = notes
    assert note.startswith(f"{tmp_path / 'tensorboard'} cannot be written (")
    assert note.endswith("; the sweep goes on without it.")


def hparams_groups(multiplexer: EventMultiplexer, folder: Path) -> dict[str, Any]:
    """The rows of the HParams table, as TensorBoard reads them on from where it was."""
    multiplexer.AddRunsFromDirectory(str(folder)).Reload()
    context = Context(TBContext(data_provider=MultiplexerDataProvider(multiplexer, str(folder))))
    request = api_pb2.ListSessionGroupsRequest(
        slice_size=100, aggregation_type=api_pb2.AGGREGATION_AVG, allowed_statuses=api_pb2.Status.values()
    )
    found = Handler(RequestContext(), context, "", request).run()
    return {group.name: group for group in found.session_groups}


def test_tensorboard_shows_a_row_a_trial_with_the_mean_of_its_repeats(tmp_path: Path) -> None:
    made = sweep(tmp_path, repeats=2)
    for record in made.records:
        record.metrics["test_accuracy"] = 0.25 + 0.5 * record.repeat
    *before, last = made.records
    before[0].outcome = Outcome.OOM
    board = TensorBoardWriter(tmp_path / "tensorboard", VARIED)
    board.write_all(before)
    multiplexer = EventMultiplexer()
    groups = hparams_groups(multiplexer, board.folder)
    assert groups.keys() == {record.trial_id for record in made.records}
    for trial_id, group in groups.items():
        runs = [record for record in before if record.trial_id == trial_id]
        assert {session.name for session in group.sessions} == {run_name(record, VARIED) for record in runs}
        hparams = {name: value.number_value for name, value in group.hparams.items()}
        assert hparams == {name: runs[0].config[name] for name in VARIED}
        means = {metric.name.tag: metric.value for metric in group.metric_values}
        assert means["Run/Test accuracy"] == (0.25 if trial_id == last.trial_id else 0.5)
    statuses = [session.status for session in groups[before[0].trial_id].sessions]
    assert sorted(statuses) == [api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE]

    board.write_last_epoch(so_far(last, last.epochs[:1]))
    sessions = hparams_groups(multiplexer, board.folder)[last.trial_id].sessions
    assert api_pb2.STATUS_UNKNOWN in [session.status for session in sessions]
    board.write(last)
    sessions = hparams_groups(multiplexer, board.folder)[last.trial_id].sessions
    assert [session.status for session in sessions] == [api_pb2.STATUS_SUCCESS] * 2, "in the row of its trial"
