from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.analysis.frames import Results, load
from dmls_ray.errors import StoreError
from dmls_ray.store import Store
from tests.analysis.samples import results

GRID = {"batch_per_rank": [16, 32], "world_size": [1, 2]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store(tmp_path) as store:
        for record in results(GRID, lambda values, repeat: 100.0).records:
            store.append(record)
    return tmp_path


def test_a_folder_is_read_as_data_frames(folder: Path) -> None:
    loaded = load(folder)
    assert len(loaded) == len(loaded.runs) == 12
    assert len(loaded.ranks) == 18
    assert len(loaded.epochs) == 24
    assert len(loaded.rank_epochs) == 18
    assert loaded.runs["global_batch"].tolist() == (loaded.runs["batch_per_rank"] * loaded.runs["world_size"]).tolist()
    assert loaded.epochs["images_per_s"].isna().all()
    assert "12 ok" in repr(loaded)


def test_every_row_can_be_joined_to_its_run(folder: Path) -> None:
    loaded = load(folder)
    for frame in (loaded.ranks, loaded.epochs, loaded.rank_epochs):
        assert set(frame["run_id"]) == set(loaded.runs["run_id"])


def test_results_without_runs_have_empty_frames(tmp_path: Path) -> None:
    empty = Results(tmp_path, [])
    assert empty.ranks.empty
    assert empty.epochs.empty
    assert empty.rank_epochs.empty


def test_a_folder_without_a_sweep_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no runs.jsonl"):
        load(tmp_path)


def test_what_a_field_became_stands_beside_what_was_asked_for(folder: Path) -> None:
    loaded = load(folder)
    loaded.records[0].warmup_steps = 2
    row = loaded.runs.iloc[0]
    assert (row["warmup_steps"], row["resolved_warmup_steps"]) == (5, 2)
