from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dmls_ray.analysis.export.files import write_derived_files
from dmls_ray.analysis.results import Results, load
from dmls_ray.analysis.table.build import make_table
from dmls_ray.config.runtime import RUNTIME_FIELDS
from dmls_ray.records.metrics import RETURNABLE
from dmls_ray.records.model import RESERVED, EpochRecord
from dmls_ray.records.returned import Reported
from dmls_ray.storage.store import Store
from dmls_ray.util.errors import StoreError
from tests.analysis.samples import own_results, results

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
    for frame in (loaded.ranks, loaded.epochs, loaded.rank_epochs):
        assert set(frame["run_id"]) == set(loaded.runs["run_id"])


def test_results_without_runs_have_empty_frames(tmp_path: Path) -> None:
    empty = Results(tmp_path, [])
    assert all(frame.empty for frame in (empty.runs, empty.ranks, empty.epochs, empty.rank_epochs))
    with pytest.raises(StoreError, match="holds no runs.jsonl"):
        load(tmp_path)


def test_the_value_a_field_became_stands_next_to_the_configured_one(folder: Path) -> None:
    loaded = load(folder)
    loaded.records[0].metrics["warmup_steps"] = 2
    row = loaded.runs.iloc[0]
    assert (row["warmup_steps"], row["resolved_warmup_steps"]) == (5, 2)


def test_runs_of_user_functions_and_of_trials_share_a_frame_without_defaults_of_the_other_kind() -> None:
    own = own_results({"steps": [10]}, lambda values, repeat: (1.0, {"bits": 2.5, "parameters": 7}), repeats=1)
    built_in = results({"batch_per_rank": [16]}, lambda values, repeat: 100.0, repeats=1)
    frame = Results(Path("somewhere"), [*own.records, *built_in.records]).runs.set_index("train")
    mine, theirs = frame.loc[own.records[0].config["train"]], frame.loc[None] if None in frame.index else frame.iloc[-1]
    assert (mine.steps, mine.bits, mine.parameters) == (10, 2.5, 7)
    assert theirs.model == "digits_convnet"
    assert mine.model is None or mine.model != mine.model
    assert "resolved_steps" in frame, "what the run counted stands beside what was asked for"


def test_the_machine_has_columns_of_its_own() -> None:
    runs = own_results({"cores": [4, 8]}, lambda values, repeat: (1.0, {"cpu": 87.5, "gpus": 3}), repeats=1)
    frame = runs.runs.sort_values("cores")
    assert frame[["cores", "cpu", "gpus"]].to_numpy().tolist() == [[4, 87.5, 3], [8, 87.5, 3]]
    of_machine = frame[["machine_host", "machine_cpu", "machine_cores", "machine_gpus"]]
    assert of_machine.to_numpy().tolist() == [["lab", "Some CPU", 2, ""]] * 2


COLUMNS = own_results({"width": [8]}, lambda values, repeat: (1.0, {"bits": 2.5}), repeats=1).runs.columns
FILLED = {*RUNTIME_FIELDS, "train", "width", *RETURNABLE}
"""Fields that no function defines, and metrics that it may fill."""


@pytest.mark.parametrize("name", [*(name for name in COLUMNS if name not in FILLED), "Width", "measured_bits"])
def test_no_name_of_a_field_or_of_a_metric_hides_another_column(name: str) -> None:
    def tell(values: Any, repeat: int) -> tuple[float, dict[str, Any]]:
        measures = {name: 9.25, f"measured_{name}": 9.5}
        return 1.0, Reported(values).read(measures, RETURNABLE)

    fields = own_results({name: [101, 102], "width": 8}, lambda values, repeat: (1.0, {}), repeats=1)
    metrics = own_results({"width": [101, 102]}, tell, repeats=1)
    for made, expected in ((fields, {101, 102}), (metrics, {9.25}), (metrics, {9.5})):
        for record in made.records:
            record.epochs = [EpochRecord(epoch=1, metrics={"train_s": 2.0, **record.metrics})]
        assert {*COLUMNS} - {"width", "bits"} <= {*made.runs}, "what is recorded of every run"
        for frame in (made.runs, make_table(made).numbers(), made.epochs if made is metrics else made.runs):
            assert frame.columns.is_unique
            assert [column for column in frame if {*frame[column]} == expected]
        assert {*made.epochs.train_s} == {2.0}
    for frame in (fields.runs, make_table(fields).numbers()):
        assert {*frame[f"config_{name}" if name in RESERVED else name]} == {101, 102}


def test_a_metric_with_the_name_of_the_end_of_an_interval_keeps_it(tmp_path: Path) -> None:
    made = own_results({"width": [8, 16]}, lambda values, repeat: (1.0, {"acc": 0.5 + repeat, "acc_low": 0.25, "n": 7}))
    numbers = make_table(Results(tmp_path, made.records)).numbers()
    assert {*numbers["acc_low"]} == {0.25}
    assert {*numbers["interval_acc_low"]} != {0.25}
    assert ({*numbers["n"]}, {*numbers["measured_n"]}) == ({3}, {7})


def test_a_picture_is_in_no_table(tmp_path: Path) -> None:
    measures = {"bits": 2.0, "picture": "/9j/AAA="}
    runs = own_results({"width": [8]}, lambda values, repeat: (1.0, measures), repeats=1)
    assert runs.records[0].picture
    write_derived_files(Results(tmp_path, runs.records))
    for frame in (runs.runs, pd.read_csv(tmp_path / "runs.csv"), pd.read_parquet(tmp_path / "runs.parquet")):
        assert "bits" in frame
        assert "picture" not in frame
    assert not [path.name for path in tmp_path.iterdir() if path.suffix != ".html" and b"/9j/" in path.read_bytes()]


def test_columns_of_several_types_are_written_as_texts(tmp_path: Path) -> None:
    values = iter([[1], 2.0, "n/a"])
    runs = own_results({"cell": ["a", "b", 3]}, lambda values_of, repeat: (1.0, {"odd": next(values)}), repeats=1)
    write_derived_files(Results(tmp_path, runs.records))
    written = pd.read_parquet(tmp_path / "runs.parquet")
    assert set(written.odd) == {"[1]", "2.0", "n/a"}
    assert (tmp_path / "table.md").exists()
