"""Results at a URI: file:// and S3. No run is lost if a process dies, or if several write at the same time."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmls_ray import load
from dmls_ray.cli import sweep_script
from dmls_ray.cli.main import main
from dmls_ray.cluster.resources import local_resources
from dmls_ray.config.options import Options
from dmls_ray.execution.executor import Executor
from dmls_ray.execution.identities import Identities
from dmls_ray.execution.jobs import JobFactory
from dmls_ray.execution.planning import make_plan, results_location
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.storage import remote_store
from dmls_ray.storage.location import first_free_location, open_store, records_at
from dmls_ray.storage.mirror import Mirror
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.storage.remote_store import RemoteStore
from dmls_ray.util.errors import ConfigError, StoreError
from dmls_ray.util.uri import numbered
from dmls_ray.workloads.registry import workload
from tests.analysis.samples import results
from tests.conftest import S3, start_s3
from tests.execution.test_run_plan import GRID, Notes
from tests.records.test_model import record


def run(number: int, outcome: Outcome = Outcome.OK) -> RunRecord:
    return record(run_id=f"a-{number}", repeat=number, outcome=outcome)


def numbers(uri: str | Path) -> list[int]:
    """The repeats of the runs there, with repetitions."""
    return sorted(item.repeat for item in load(uri).records)


def loose(uri: str) -> list[str]:
    return [item.name for item in ObjectStore(uri).list("runs") if not item.is_folder]


def lines(uri: str) -> list[Any]:
    return [json.loads(line) for line in (ObjectStore(uri).get("runs.jsonl") or b"").splitlines()]


def path_of(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def left_by_a_death(uri: str, *runs: RunRecord) -> RemoteStore:
    """A store with runs of a process that died: it is never closed."""
    store = RemoteStore(uri, note=print)
    for item in runs:
        store.append(item)
    return store


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A results folder as file://."""
    return f"{tmp_path.as_uri()}/sweep"


@pytest.fixture
def notes() -> list[str]:
    return []


def test_a_run_is_an_object_when_it_is_appended_and_a_line_when_the_sweep_has_ended(uri: str, notes: list[str]) -> None:
    with open_store(uri, notes.append) as store:
        store.add_session({"axis": "lr"})
        assert [item.name for item in ObjectStore(uri).list()] == ["sweep.json"], "what was asked for is there at once"
        for number in (0, 1):
            store.append(run(number))
            assert len(loose(uri)) == number + 1
            assert numbers(uri) == list(range(number + 1)), "every reader sees it"
        assert "a-1" in loose(uri)[1]
        assert lines(uri) == []
    assert loose(uri) == []
    assert [line["run_id"] for line in lines(uri)] == ["a-0", "a-1"]
    assert load(uri).records == [run(0), run(1)]
    assert repr(load(uri)) == f"Results({uri!r}, 2 runs: 2 ok)"
    assert notes == []


def test_runs_of_a_dead_process_are_read_and_merged_by_the_next_sweep(uri: str, notes: list[str]) -> None:
    left_by_a_death(uri, run(0), run(1, Outcome.KILLED))
    assert numbers(uri) == [0, 1]
    with open_store(uri, notes.append) as store:
        assert [item.outcome for item in store.records] == [Outcome.OK, Outcome.KILLED]
        store.append(run(1))
        assert [item.outcome for item in load(uri).records] == [Outcome.OK, Outcome.OK], "the last line counts"
    assert loose(uri) == []
    assert [(line["repeat"], line["outcome"]) for line in lines(uri)] == [(0, "ok"), (1, "killed"), (1, "ok")]
    assert notes == []


def test_a_death_before_the_objects_are_deleted_neither_counts_a_run_twice_nor_restores_an_older_line(
    uri: str, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left_by_a_death(uri, run(0), run(1, Outcome.KILLED))
    store = open_store(uri, notes.append)
    store.append(run(1))
    store.append(run(2))
    delete_all = ObjectStore.delete_all

    def die_after_some(self: ObjectStore, names: Any) -> None:
        if len(names) == 4:
            delete_all(self, sorted(names)[2:])  # the newer ones are gone, the older ones stay
            raise KeyboardInterrupt
        delete_all(self, names)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "delete_all", die_after_some)
        with pytest.raises(KeyboardInterrupt):
            store.close()
    assert (len(lines(uri)), len(loose(uri))) == (4, 2)
    assert [(item.repeat, item.outcome.value) for item in load(uri).records] == [(0, "ok"), (1, "ok"), (2, "ok")]
    open_store(uri, notes.append).close()
    assert (len(lines(uri)), len(loose(uri))) == (4, 0)
    assert numbers(uri) == [0, 1, 2]


def test_two_sweeps_at_once_lose_no_run_and_each_notes_the_other(uri: str, notes: list[str]) -> None:
    first, second = open_store(uri, notes.append), open_store(uri, notes.append)
    first.add_session({"started_at": "1", "name": "first"})
    second.add_session({"started_at": "2", "name": "second"})
    first.append(run(0))
    second.append(run(1))
    first.append(run(2))
    first.close()
    assert loose(uri) == []
    second.append(run(3))
    second.close()
    assert loose(uri) == []
    assert numbers(uri) == [0, 1, 2, 3]
    assert len(lines(uri)) == 4
    sessions = json.loads(ObjectStore(uri).get("sweep.json") or b"")["sessions"]
    assert [session["name"] for session in sessions] == ["first", "second"]
    assert notes == [
        f"Another sweep has written {count} runs to {uri} meanwhile; they are kept, too. Two sweeps at once run the "
        "same twice and disturb each other's times: give each a different --out."
        for count in (1, 2)
    ]  # fmt: skip


def test_of_two_that_merge_runs_at_once_one_leaves_its_runs_to_the_next_sweep(
    place: str, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = open_store(place, print), open_store(place, notes.append)
    first.append(run(0))
    second.append(run(1))
    put, came = ObjectStore.put, []

    def second_comes_between(self: ObjectStore, name: str, content: bytes) -> None:
        if name == "runs.jsonl" and not came:
            came.append(name)
            second.append(run(2))  # the first has looked already
            second.close()
        put(self, name, content)

    monkeypatch.setattr(ObjectStore, "put", second_comes_between)
    first.close()
    assert notes[0].startswith(f"Another sweep merges its runs into {place}/runs.jsonl at this moment")
    assert [line["repeat"] for line in lines(place)] == [0, 1]
    assert len(loose(place)) == 1
    assert numbers(place) == [0, 1, 2]
    open_store(place, print).close()
    assert (len(lines(place)), loose(place)) == (3, [])


def test_many_sweeps_that_end_at_the_same_moment_lose_no_run(place: str) -> None:
    for again in range(5):
        stores = [open_store(place, lambda note: None) for _ in range(4)]
        for number, store in enumerate(stores):
            for count in range(3):
                store.append(run(100 * again + 10 * number + count))
        threads = [threading.Thread(target=store.close) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = sorted(
        100 * again + 10 * number + count for again in range(5) for number in range(4) for count in range(3)
    )
    assert numbers(place) == expected
    open_store(place, print).close()
    assert sorted(line["repeat"] for line in lines(place)) == expected


def test_a_claim_of_a_dead_process_is_valid_for_an_hour(place: str, notes: list[str]) -> None:
    left_by_a_death(place, run(0))
    ObjectStore(place).put("compacting/other.json", b"{}")
    open_store(place, notes.append).close()
    assert len(notes) == len(loose(place)) == 1
    claim = path_of(place) / "compacting" / "other.json"
    before = claim.stat().st_mtime - 3700
    os.utime(claim, (before, before))
    open_store(place, notes.append).close()
    assert (len(notes), loose(place), len(lines(place))) == (1, [], 1)
    assert not list(claim.parent.iterdir())


def test_a_reader_misses_no_run_while_runs_are_merged(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = left_by_a_death(uri, run(0), run(1))
    names = Mirror.pending_names

    def others_merge_them(self: Mirror) -> list[str]:
        found = names(self)
        monkeypatch.setattr(Mirror, "pending_names", names)
        store.close()
        assert loose(uri) == []
        return found

    monkeypatch.setattr(Mirror, "pending_names", others_merge_them)
    assert numbers(uri) == [0, 1]


def test_a_store_that_goes_away_and_comes_back_gets_every_run(
    place: str, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_store, "_RETRY_S", 0.0)
    monkeypatch.setattr(remote_store, "_RETRY_SHARE", 0)
    with open_store(place, notes.append) as store:
        store.append(run(0))
        folder = path_of(place)
        folder.rename(folder.with_name("away"))
        folder.write_text("no folder")
        store.append(run(1))
        store.append(run(2))
        assert len(notes) == 1
        assert "the sweep goes on" in notes[0]
        folder.unlink()
        folder.with_name("away").rename(folder)
        store.append(run(3))
        assert notes[1:] == [f"{place} answers again, and has all runs that have ended."]
        assert len(loose(place)) == 4
    assert numbers(place) == [0, 1, 2, 3]
    assert not store.mirror.is_kept  # type: ignore[union-attr]


def test_a_store_that_does_not_answer_is_not_asked_at_every_run(
    place: str, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fail(*_: Any) -> None:
        tried.append(1)
        raise StoreError("it does not answer.")

    with open_store(place, notes.append) as store:
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "put", fail)
            for number in range(5):
                store.append(run(number))
        assert len(tried) == 1
    assert numbers(place) == [0, 1, 2, 3, 4], "at the end it is tried again"


def test_runs_that_cannot_be_uploaded_are_kept_and_the_note_has_the_command_that_uploads_them(
    use_s3: Callable[[S3], str], place: str, notes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_s3()
    try:
        uri = f"{use_s3(server)}/sweep"
        store = open_store(uri, notes.append)
        store.add_session({"axis": "lr", "axes": {"lr": [1]}})
        store.append(run(0))
    finally:
        server.end()
    store.append(run(1))
    store.close()
    assert len(notes) == 2
    command = f"dmls-ray copy {store.folder} {uri}"
    assert "1 runs of this sweep are not there" in notes[1]
    assert notes[1].endswith(f"{command} uploads them.")
    with pytest.raises(SystemExit) as ended:
        main(["copy", str(store.folder), place])
    assert ended.value.code == 0
    assert "2 of 2 runs added" in capsys.readouterr().out
    assert numbers(place) == [0, 1]
    assert load(place).where == place
    with pytest.raises(SystemExit):
        main(["copy", str(store.folder), place])
    assert "0 of 2 runs added" in capsys.readouterr().out
    shutil.rmtree(store.folder)
    assert len(lines(place)) == 2


def test_a_store_that_cannot_be_written_is_reported_before_anything_starts(place: str, notes: list[str]) -> None:
    store = open_store(place, notes.append)
    path_of(place).parent.joinpath("sweep").write_text("no folder")
    with pytest.raises(StoreError, match="cannot be written"):
        store.add_session({})
    store.close()
    assert notes == []


def test_an_object_that_is_no_record_is_refused_by_its_name(place: str) -> None:
    left_by_a_death(place, run(0))
    ObjectStore(place).put("runs/by-hand.json", b"[]")
    with pytest.raises(StoreError, match=r"sweep/runs/by-hand.json is no record .*; remove it, or name another"):
        load(place)
    ObjectStore(place).delete_all(["runs/by-hand.json"])
    ObjectStore(place).put("runs.jsonl", b"no json\n")
    with pytest.raises(StoreError, match=rf"{place}/runs.jsonl, line 1 is no record"):
        load(place)


def test_a_fresh_location_is_the_first_without_a_sweep(uri: str) -> None:
    assert first_free_location(uri) == uri
    left_by_a_death(uri, run(0))  # no runs.jsonl yet
    assert first_free_location(uri) == numbered(uri, 2)
    with open_store(numbered(uri, 2), print) as store:
        store.append(run(0))
    assert results_location(Options(out=uri, fresh=True)) == numbered(uri, 3)
    assert records_at(numbered(uri, 3)) == []
    assert len(records_at(numbered(uri, 2))) == 1


def test_a_folder_that_is_read_by_its_path_has_what_was_written_by_its_uri(place: str) -> None:
    left_by_a_death(place, run(0))
    assert numbers(path_of(place)) == [0]
    with pytest.raises(StoreError, match=f"1 runs as single files in runs/, .* go on with --out {place}, which"):
        open_store(path_of(place), print)
    open_store(place, print).close()
    with open_store(path_of(place), print) as store:
        assert len(store.records) == 1


def test_new_files_are_uploaded_and_removed_files_of_tensorboard_are_deleted(uri: str) -> None:
    objects = ObjectStore(uri)
    objects.put_all(["tensorboard/old/events", "figures/old.svg", "table.md"], str.encode)
    mirror = Mirror(uri, ("table.md", "tensorboard"))
    assert sorted(path.name for path in mirror.folder.iterdir()) == ["table.md", "tensorboard"]
    for name in ("tensorboard/new/events", "figures/new.svg"):
        path = mirror.folder / name
        path.parent.mkdir(parents=True)
        path.write_text("new")
    at = {item.name: item.modified_ns for item in objects.list()}
    mirror.push()
    there = [item.name for item in objects.list(deep=True) if not item.is_folder]
    assert there == ["figures/new.svg", "figures/old.svg", "table.md", "tensorboard/new/events"]
    assert {item.name: item.modified_ns for item in objects.list()}["table.md"] == at["table.md"], "it is not changed"


def test_the_local_copy_is_deleted_with_its_last_reference(place: str) -> None:
    left_by_a_death(place, run(0))
    found = load(place)
    part = found.of(found.records[:1])
    folder = found.folder
    del found
    assert (folder / "runs.jsonl").exists()
    assert part.where == place
    del part
    assert not folder.exists()


# --- a whole call -------------------------------------------------------------------------------------------------


@pytest.fixture
def finished(uri: str) -> str:
    """A URI where every run of the grid has ended."""
    with open_store(uri, print) as store:
        store.add_session({"axes": {"batch_per_rank": [16, 32]}, "axis": "batch_per_rank"})
        for item in results(GRID, lambda values, repeat: 100.0 * values["batch_per_rank"]).records:
            store.append(item)
    return uri


def call(uri: str) -> tuple[Any, list[str]]:
    view = Notes()
    return run_plan(make_plan(GRID), Options(out=uri), view), view.notes  # type: ignore[arg-type]


def test_a_call_leaves_all_files_at_the_uri_and_the_next_leaves_them_as_they_are(finished: str) -> None:
    found, notes = call(finished)
    assert (len(found), notes) == (6, [])
    there = {item.name: item.modified_ns for item in ObjectStore(finished).list()}
    assert {"runs.jsonl", "sweep.json", "report.html", "table.md", "runs.parquet", "tensorboard"} <= there.keys()
    assert b"batch_per_rank 16 to 32" in (ObjectStore(finished).get("table.md") or b"")
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
def test_what_ranks_keep_needs_a_folder(place: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} needs a folder that the ranks can write to"):
        Options(out=place, **{name: True})


def test_credentials_in_out_are_refused_before_anything_is_opened() -> None:
    with pytest.raises(ConfigError, match="--out s3://bucket/x was given with credentials in it"):
        Options(out="s3://KEY:HIDDEN@bucket/x")
    with pytest.raises(ConfigError, match="is a URI that lacks a slash"):
        Options(out=Path("s3://bucket/x"))  # type: ignore[arg-type]


def test_profiles_of_inference_are_left_out_at_a_uri_with_a_note(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executor, "run", lambda self, pending: None)
    plan = make_plan({"batch_per_rank": 16, "world_size": 1, "inference_batch": 8})
    kept, chosen = [], workload("classification")
    for out in (place, str(path_of(place))):
        view, options = Notes(), Options(out=out)
        run_plan(plan, options, view)  # type: ignore[arg-type]
        jobs = JobFactory(local_resources(), options, chosen, Path("folder"), Identities(chosen))
        kept.append(
            (jobs.create(plan.runs[0]).artifacts is not None, [note for note in view.notes if "Profiles" in note])
        )
    note = "Profiles and other files of ranks need a folder, and --out is a URI: they are left out."
    assert kept == [(False, [note]), (True, [])]


def test_a_dry_run_shows_what_is_done_at_a_uri(finished: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        sweep_script.main(
            name="test", question="What?", axis="batch_per_rank", defaults={**GRID, "batch_per_rank": [16, 64]},
            arguments=["--out", finished, "--dry-run"],
        )  # fmt: skip
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert (out.count("  done"), out.count("  to run")) == (3, 3)
