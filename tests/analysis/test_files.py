from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from dmls_ray import load
from dmls_ray.analysis.files import DERIVED, are_written, write_files
from dmls_ray.analysis.frames import Results
from dmls_ray.store import Store
from tests.analysis.samples import results

GRID = {"batch_per_rank": [16, 32], "world_size": [1, 2]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store(tmp_path) as store:
        store.add_session({"axes": GRID, "axis": "world_size"})
        for record in results(GRID, lambda values, repeat: 100.0).records:
            store.append(record)
    return tmp_path


def test_derived_files_are_made_anew_from_all_records(folder: Path) -> None:
    loaded = load(folder)
    for _ in range(2):
        write_files(loaded)
        assert len(pd.read_csv(folder / "runs.csv")) == 12
        assert len(pd.read_csv(folder / "ranks.csv")) == 18
        assert len(pd.read_csv(folder / "epochs.csv")) == 24
        assert len(pd.read_parquet(folder / "runs.parquet")) == 12
        text = (folder / "table.md").read_text()
        assert sum(line.startswith("|") for line in text.splitlines()) == 2 + 4
        assert "from world_size 1 to 2" in text, "the axis that was asked about is answered"
    assert not list(folder.glob(".*.new"))


def test_files_older_than_the_runs_are_not_up_to_date(folder: Path) -> None:
    assert not are_written(folder)
    write_files(load(folder))
    assert are_written(folder)
    os.utime(folder / "runs.jsonl", (2**31, 2**31))
    assert not are_written(folder)


def test_no_runs_leave_no_files(tmp_path: Path) -> None:
    write_files(Results(tmp_path, []))
    assert list(tmp_path.iterdir()) == []
    assert len(DERIVED) == 7
