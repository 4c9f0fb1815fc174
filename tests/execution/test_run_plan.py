from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dmls_ray.execution.run_plan as run_plan_module
from dmls_ray import load, sweep
from dmls_ray.cli.sweep_script import main
from dmls_ray.config.grid import Plan
from dmls_ray.config.options import Options
from dmls_ray.config.sweep_file import Preset
from dmls_ray.execution.executor import Executor
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.records import provenance
from dmls_ray.storage.folder import read_sweep
from dmls_ray.storage.location import open_store
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.util.errors import ConfigError, NotKeptError, StoreError
from tests.analysis.samples import results
from tests.records.test_model import record

GRID = {"batch_per_rank": [16, 32], "world_size": 1}
OTHER = {"batch_per_rank": [16, 64], "world_size": 1}


class Notes:
    """A view that keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def with_every_run(location: Path | str) -> None:
    """Write results in which every run of the grid has ended."""
    with open_store(location, print) as store:
        store.add_sessions({"axes": {"batch_per_rank": [16, 32]}, "axis": "batch_per_rank"})
        store.append(*results(GRID, lambda values, repeat: 100.0 * values["batch_per_rank"]).records)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A folder in which every run of the grid has ended."""
    with_every_run(tmp_path)
    return tmp_path


@pytest.fixture
def finished_uri(bucket: str) -> str:
    """A URI where every run of the grid has ended."""
    with_every_run(f"{bucket}/a folder/sweep")
    return f"{bucket}/a folder/sweep"


def raising(error: BaseException) -> Callable[..., Any]:
    """A function that raises an exception whatever it is called with."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def command(axes: dict[str, Any], *flags: object) -> int:
    """The exit code of a sweep script over the batch, run in this process."""
    with pytest.raises(SystemExit) as ended:
        main(Preset(name="test", question="What?", axis="batch_per_rank", axes=axes), [str(flag) for flag in flags])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def call(folder: Path | str, plan: Plan | None = None) -> tuple[Any, list[str]]:
    view = Notes()
    plan = plan or make_plan(GRID)
    return run_plan(plan, Options(out=str(folder), repeats=3), view), view.notes  # type: ignore[arg-type]


def test_a_report_that_cannot_be_written_is_a_note_and_the_sweep_goes_on(finished: Path) -> None:
    (finished / "report.html").mkdir()
    found, (nothing, note) = call(finished)
    assert len(found) == 6
    assert nothing == "Nothing to run: all runs have ended before (6)."
    assert note.startswith(f"report.html of {finished} cannot be written (Is a directory); ")
    assert note.endswith(f"dmls-ray report {finished} tries again.")


def test_the_command_line_has_its_table_and_answer_without_a_report(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished / "report.html").mkdir()
    assert command(GRID, "--out", finished) == 0
    out = capsys.readouterr().out
    assert "batch_per_rank 32 vs 16  2.00x" in out
    assert "Report: " not in out


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("of the sweep")])
def test_the_exception_of_a_sweep_is_not_hidden(
    finished: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Executor, "run", raising(error))
    monkeypatch.setattr(run_plan_module, "write_derived_files", raising(ValueError("of the files")))
    with pytest.raises(type(error)) as raised:
        call(finished, make_plan(OTHER))
    assert raised.value is error


def test_runs_of_other_versions_are_named_before_the_sweep_starts(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Executor, "run", lambda *_: None)
    monkeypatch.setattr(provenance, "describe_versions", lambda: {"python": "3.11", "torch": "3", "ray": "2.60"})
    monkeypatch.setattr(provenance, "describe_git", dict)
    machine = load(finished).records[0].machine
    monkeypatch.setattr(provenance, "machine_facts", lambda: machine)
    grid = make_plan({**GRID, "batch_per_rank": [16, 32, 64]})
    _, notes = call(finished, grid)
    assert (
        "This folder holds 6 runs of another machine or of other versions, which are not compared with the new runs. "
        "Pass --fresh to start a new folder."
    ) in notes
    monkeypatch.setattr(provenance, "describe_versions", lambda: {"python": "3.11", "torch": "2", "ray": "2.60"})
    assert not any("other versions" in note for note in call(finished, grid)[1])


def test_machines_that_measured_together_with_this_one_are_named_as_no_others(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Executor, "run", lambda *_: None)
    records = load(finished).records
    record = records[0]
    monkeypatch.setattr(provenance, "machine_facts", lambda: record.machine)
    monkeypatch.setattr(provenance, "describe_versions", lambda: record.versions)
    monkeypatch.setattr(provenance, "describe_git", lambda: record.git)
    file = finished / "runs.jsonl"
    of_lanes = [
        item.replace(machine={**item.machine, "host": f"host-{n % 2}"}, session="one") for n, item in enumerate(records)
    ]
    file.write_bytes(b"".join(item.to_json() + b"\n" for item in of_lanes))
    grid = make_plan({**GRID, "batch_per_rank": [16, 32, 64]})
    assert any("6 runs of another machine" in note for note in call(finished, grid)[1])
    monkeypatch.setattr(provenance, "machine_facts", lambda: of_lanes[1].machine)
    assert not any("another machine" in note for note in call(finished, grid)[1])


def test_a_session_names_the_trials_that_were_asked_for(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executor, "_set_aside", raising(KeyboardInterrupt()))
    plan = make_plan(OTHER)
    with pytest.raises(KeyboardInterrupt):
        call(finished, plan)
    last = read_sweep(finished)["sessions"][-1]
    assert set(last["trials"]) == {run.trial_id for run in plan.runs}
    assert last["repeats"] == 3


def test_a_disk_without_space_ends_the_sweep_without_further_files(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Executor, "run", raising(NotKeptError("no space.")))
    monkeypatch.setattr(run_plan_module, "write_derived_files", lambda *_: pytest.fail("files are written"))
    with pytest.raises(NotKeptError):
        call(finished, make_plan(OTHER))
    assert command(OTHER, "--out", finished) == 1


def test_a_call_leaves_all_files_at_the_uri(finished_uri: str) -> None:
    found, notes = call(finished_uri)
    assert (len(found), notes) == (6, ["Nothing to run: all runs have ended before (6)."])
    there = {name.partition("/")[0] for name in ObjectStore(finished_uri).list(deep=True)}
    assert {"runs", "sessions", "report.html", "table.md", "runs.parquet"} <= there
    assert b"batch_per_rank 32 vs 16" in (ObjectStore(finished_uri).get("table.md") or b"")


def test_no_file_at_the_uri_names_a_credential_or_the_local_folder(finished_uri: str) -> None:
    found, _ = call(finished_uri)
    objects = ObjectStore(finished_uri)
    secrets = [value.encode() for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if (value := os.getenv(name))]
    for name in objects.list(deep=True):
        content = objects.get(name) or b""
        assert not any(text in content for text in (*secrets, str(found.folder).encode())), name


def test_another_functions_runs_are_refused_by_the_uri(finished_uri: str) -> None:
    with open_store(finished_uri, print) as store:
        store.append(record(run_id="b-0", config={"train": "module:function", "lr": 1}))
    with pytest.raises(StoreError, match=rf"--out {finished_uri} holds runs of"):
        call(finished_uri)


@pytest.mark.parametrize("name", ["checkpoints", "save_weights"])
def test_what_ranks_keep_needs_a_folder(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} needs a folder that the ranks can write to"):
        Options(out="s3://bucket/sweep", **{name: True})


def test_a_dry_run_shows_what_is_done_at_a_uri(finished_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(OTHER, "--out", finished_uri, "--dry-run") == 0
    out = capsys.readouterr().out
    assert (out.count("  done"), out.count("  to run")) == (3, 3)


AXES = {"batch_per_rank": 8}


def test_help_and_notebooks_list_the_options_as_keywords_of_sweep() -> None:
    parameters = inspect.signature(sweep).parameters
    keywords = [name for name, item in parameters.items() if item.kind is item.KEYWORD_ONLY]
    assert keywords == ["workload", "args", "env", "share", "keep", *inspect.signature(Options).parameters]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([AXES], {"repeat": 3}, "repeat is no option of sweep; did you mean repeats? the options are workload, name"),
        ([AXES], {"lr": 0.1}, "lr is no option of sweep but a field of classification; put it into the axes."),
        ([AXES], {"workload": "blur"}, "--workload blur: unknown workload; installed are "),
        ([AXES], {"search": True, "metric": "val_loss"}, "unknown metric; classification reports train_loss"),
        ([AXES], {"num_samples": 3, "trials": 4}, "num_samples and trials are both given, and mean the same"),
        ([AXES], {"mode": "max"}, "--goal max says what is better of a metric; add --metric, or leave it out."),
        ([], {}, "sweep() takes axes, or a training function and its axes"),
        (["m:f", AXES], {"workload": "grayscale"}, "workload=grayscale and a training function are both given"),
    ],
)
def test_what_sweep_is_given_wrongly_is_named_with_the_way_out(
    arguments: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        sweep(*arguments, **options)
