from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from dmls_ray import load
from dmls_ray.analysis.export.files import DERIVED_FILES, derived_files_are_current, write_derived_files
from dmls_ray.analysis.results import Results
from dmls_ray.storage.store import Store
from dmls_ray.util.errors import StoreError
from tests.analysis.samples import results
from tests.new_processes import FORKS

GRID = {"batch_per_rank": [16, 32], "world_size": [1, 2]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store(tmp_path) as store:
        store.add_sessions({"axes": GRID, "axis": "world_size"})
        for record in results(GRID, lambda values, repeat: 100.0).records:
            store.append(record)
    return tmp_path


def test_derived_files_are_rewritten_from_all_records(folder: Path) -> None:
    loaded = load(folder)
    for _ in range(2):
        write_derived_files(loaded)
        assert len(pd.read_csv(folder / "runs.csv")) == 12
        assert len(pd.read_csv(folder / "ranks.csv")) == 18
        assert len(pd.read_csv(folder / "epochs.csv")) == 24
        assert len(pd.read_parquet(folder / "runs.parquet")) == 12
        text = (folder / "table.md").read_text()
        table, _, answer = text.partition("**")
        assert sum(line.startswith("|") for line in table.splitlines()) == 2 + 4
        assert "ranks 2 vs 1 (" in answer, "the axis that was asked about is answered"
    assert not list(folder.glob(".*.new"))


def test_files_older_than_the_runs_are_not_up_to_date(folder: Path) -> None:
    assert not derived_files_are_current(folder)
    write_derived_files(load(folder))
    assert derived_files_are_current(folder)
    os.utime(folder / "runs.jsonl", (2**31, 2**31))
    assert not derived_files_are_current(folder)


def test_no_runs_leave_no_files(tmp_path: Path) -> None:
    write_derived_files(Results(tmp_path, []))
    assert list(tmp_path.iterdir()) == []
    assert len(DERIVED_FILES) == 7


def test_a_file_that_cannot_be_written_is_named_and_the_others_are_written(folder: Path) -> None:
    (folder / "runs.csv").mkdir()
    (folder / "report.html").mkdir()
    with pytest.raises(StoreError, match=r"^report\.html, runs\.csv of .* cannot be written \(Is a directory\)"):
        write_derived_files(load(folder))
    assert not derived_files_are_current(folder)
    assert (folder / "table.md").stat().st_size
    assert not list(folder.glob(".*.new"))


def test_several_processes_write_the_same_files_at_a_time(folder: Path) -> None:
    writers = [FORKS.Process(target=write_derived_files, args=(load(folder),)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert derived_files_are_current(folder)
    assert not list(folder.glob(".*.new"))
