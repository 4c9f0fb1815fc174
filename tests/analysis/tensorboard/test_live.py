from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.analysis.tensorboard.live import LiveTensorBoardWriter
from dmls_ray.storage.folder import Store
from tests.analysis.samples import results

GRID = {"world_size": [1, 2]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store(tmp_path) as store:
        store.add_session({"axes": {**GRID, "batch_per_rank": [16]}})
        for record in results({**GRID, "batch_per_rank": [16]}, lambda values, repeat: 100.0, repeats=1).records:
            store.append(record)
    return tmp_path


def test_a_write_error_is_reported_once_and_the_sweep_goes_on(folder: Path) -> None:
    (folder / "tensorboard").write_text("in the way")
    notes: list[str] = []
    board = LiveTensorBoardWriter(folder, notes.append)
    with Store(folder) as store:
        records = store.records
    board.begin([])
    for record in records:
        board.run_started(record)
        board.epoch_ended(record.run_id, record.epochs[0])
        board.run_finished(record)
    board.end(records)
    (note,) = notes
    assert note.startswith(f"{folder / 'tensorboard'} cannot be written (")
    assert note.endswith("; the sweep goes on without it.")


def test_a_complete_folder_gets_its_event_files(folder: Path) -> None:
    with Store(folder) as store:
        LiveTensorBoardWriter(folder, print).end(store.records)
    assert {path.name for path in (folder / "tensorboard").glob("world*")} == {
        "world_size=1 repeat=0",
        "world_size=2 repeat=0",
    }


def test_off_writes_nothing(folder: Path) -> None:
    board = LiveTensorBoardWriter(folder, print, off=True)
    with Store(folder) as store:
        records = store.records
    board.begin(records)
    board.run_started(records[0])
    board.run_finished(records[0])
    board.end(records)
    assert not (folder / "tensorboard").exists()
