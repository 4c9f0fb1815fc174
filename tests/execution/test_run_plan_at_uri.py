"""A whole call whose results are at a URI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.cli import sweep_script
from dmls_ray.config.options import Options
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.storage.location import open_store
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.util.errors import ConfigError, StoreError
from tests.analysis.samples import results
from tests.execution.test_run_plan import GRID, Notes
from tests.records.test_model import record


@pytest.fixture
def finished(bucket: str) -> str:
    """A URI where every run of the grid has ended."""
    uri = f"{bucket}/a folder/sweep"
    with open_store(uri, print) as store:
        store.add_session({"axes": {"batch_per_rank": [16, 32]}, "axis": "batch_per_rank"})
        for item in results(GRID, lambda values, repeat: 100.0 * values["batch_per_rank"]).records:
            store.append(item)
    return uri


def call(uri: str) -> tuple[Any, list[str]]:
    view = Notes()
    return run_plan(make_plan(GRID), Options(out=uri, repeats=3), view), view.notes  # type: ignore[arg-type]


def test_a_call_leaves_all_files_at_the_uri_and_the_next_leaves_them_as_they_are(finished: str) -> None:
    found, notes = call(finished)
    assert (len(found), notes) == (6, ["Nothing to run: all 6 runs are there."])
    there = {item.name: item.modified_ns for item in ObjectStore(finished).list()}
    assert {"runs", "sessions", "report.html", "table.md", "runs.parquet", "tensorboard"} <= there.keys()
    assert b"batch_per_rank 32 vs 16" in (ObjectStore(finished).get("table.md") or b"")
    call(finished)
    assert {item.name: item.modified_ns for item in ObjectStore(finished).list()} == there


def test_no_file_at_the_uri_names_a_credential_or_the_local_folder(finished: str) -> None:
    found, _ = call(finished)
    objects = ObjectStore(finished)
    secrets = [value.encode() for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if (value := os.getenv(name))]
    for item in objects.list(deep=True):
        content = b"" if item.is_folder else objects.get(item.name) or b""
        assert not any(text in content for text in (*secrets, str(found.folder).encode())), item.name


def test_another_functions_runs_are_refused_by_the_uri(finished: str) -> None:
    with open_store(finished, print) as store:
        store.append(record(run_id="b-0", config={"train": "module:function", "lr": 1}))
    with pytest.raises(StoreError, match=rf"--out {finished} holds runs of"):
        call(finished)


@pytest.mark.parametrize("name", ["checkpoints", "save_weights"])
def test_what_ranks_keep_needs_a_folder(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} needs a folder that the ranks can write to"):
        Options(out="s3://bucket/sweep", **{name: True})


def test_credentials_in_out_are_refused_before_anything_is_opened() -> None:
    with pytest.raises(ConfigError, match="--out s3://bucket/x was given with credentials in it"):
        Options(out="s3://KEY:HIDDEN@bucket/x")
    with pytest.raises(ConfigError, match="is a URI that lacks a slash"):
        Options(out=Path("s3://bucket/x"))  # type: ignore[arg-type]


def test_a_dry_run_shows_what_is_done_at_a_uri(finished: str, capsys: pytest.CaptureFixture[str]) -> None:
    axes = {**GRID, "batch_per_rank": [16, 64]}
    preset = sweep_script.Preset(name="test", question="What?", axis="batch_per_rank", axes=axes)
    with pytest.raises(SystemExit) as ended:
        sweep_script.main(preset, ["--out", finished, "--dry-run"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert (out.count("  done"), out.count("  to run")) == (3, 3)
