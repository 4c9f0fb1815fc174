from __future__ import annotations

from pathlib import Path

from dmls_ray.analysis.tensorboard.live import LiveTensorBoardWriter
from tests.analysis.samples import results

RECORDS = results({"world_size": [1, 2], "batch_per_rank": [16]}, lambda values, repeat: 100.0, repeats=1).records


def test_a_write_error_is_reported_once_and_the_sweep_goes_on(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("in the way")
    notes: list[str] = []
    board = LiveTensorBoardWriter(tmp_path, notes.append)
    board.begin([])
    for record in RECORDS:
        board.run_finished(record)
    (note,) = notes
    assert note.startswith(f"{tmp_path / 'tensorboard'} cannot be written (")
    assert note.endswith("; the sweep goes on without it.")


def test_off_writes_nothing(tmp_path: Path) -> None:
    board = LiveTensorBoardWriter(tmp_path, print, off=True)
    board.begin(RECORDS)
    board.run_finished(RECORDS[0])
    assert not (tmp_path / "tensorboard").exists()
