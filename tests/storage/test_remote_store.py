"""Results at a URI: S3, and a file system. No run is lost if a process dies, or if several write at the same time."""

from __future__ import annotations

import functools
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmls_ray import load
from dmls_ray.cli.main import main
from dmls_ray.config.options import Options
from dmls_ray.execution.planning import results_location
from dmls_ray.records.outcome import Outcome
from dmls_ray.storage import remote_store
from dmls_ray.storage.folder import read_sweep
from dmls_ray.storage.location import first_free_location, open_store, records_at
from dmls_ray.storage.mirror import Mirror
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.storage.remote_store import RemoteStore
from dmls_ray.util.errors import StoreError
from dmls_ray.util.uri import numbered
from tests.conftest import S3, start_s3
from tests.storage.remote import left_by_a_death, numbers, objects_of, path_of, records, run


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A folder as file://, which stands for a distributed file system."""
    return f"{tmp_path.as_uri()}/sweep"


def folders(uri: str) -> set[str]:
    return {name.partition("/")[0] for name in ObjectStore(uri).list(deep=True)}


@pytest.fixture
def notes() -> list[str]:
    return []


def test_a_run_is_an_object_when_it_is_appended_and_stays_one(uri: str, notes: list[str]) -> None:
    with RemoteStore(uri, notes.append) as store:
        store.add_sessions({"axis": "lr"})
        assert folders(uri) == {"sessions"}, "what was asked for is there at once"
        for number in (0, 1):
            store.append(run(number))
            assert len(objects_of(uri)) == number + 1
            assert numbers(uri) == list(range(number + 1)), "every reader sees it"
        before = objects_of(uri)
        assert "s000001-000002-a-1-" in before[1]
    assert objects_of(uri) == before
    assert folders(uri) == {"runs", "sessions"}, "no object is written again"
    assert records(uri) == [run(0), run(1)]
    assert notes == []


def test_runs_of_a_dead_process_are_read_by_the_next_sweep_and_its_own_follow_them(uri: str, notes: list[str]) -> None:
    left_by_a_death(uri, run(0), run(1, Outcome.KILLED))
    with RemoteStore(uri, notes.append) as store:
        assert [item.outcome for item in store.records] == [Outcome.OK, Outcome.KILLED]
        store.append(run(1, Outcome.ERROR))
        assert [item.outcome for item in records(uri)] == [Outcome.OK, Outcome.ERROR], "the last one counts"
        store.append(run(1))
    assert [item.outcome for item in records(uri)] == [Outcome.OK, Outcome.OK]
    assert notes == []


def test_no_object_with_runs_or_sessions_is_ever_written_again(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    put_all = ObjectStore.put_all

    def put(self: ObjectStore, names: Any, content_of: Any) -> None:
        written.extend(names)
        put_all(self, names, content_of)

    monkeypatch.setattr(ObjectStore, "put_all", put)
    for number in range(3):
        with RemoteStore(uri, print) as store:
            store.add_sessions({"axis": "lr", "started_at": str(number)})
            store.append(run(0, Outcome.KILLED))
            store.append(run(number))
    assert len(written) == len(set(written)) == 9
    assert {name.partition("/")[0] for name in written} == {"runs", "sessions"}


def test_two_sweeps_at_once_lose_neither_run_nor_session(uri: str, notes: list[str]) -> None:
    first, second = RemoteStore(uri, notes.append), RemoteStore(uri, notes.append)
    first.add_sessions({"started_at": "1", "name": "first"})
    second.add_sessions({"started_at": "2", "name": "second"})
    first.append(run(0))
    second.append(run(1))
    first.append(run(2))
    first.close()
    second.append(run(3))
    second.close()
    assert numbers(uri) == [0, 1, 2, 3]
    assert len(objects_of(uri)) == 4
    again = RemoteStore(uri, print)
    sessions = read_sweep(again.folder)["sessions"]
    assert {session["name"] for session in sessions} == {"first", "second"}
    assert notes == []


class Interrupted:
    """A file system whose streams are interrupted when they are open and nothing is written yet."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_output_stream(self, path: str, **how: Any) -> Any:
        stream = self._files.open_output_stream(path, **how)
        signal.raise_signal(signal.SIGINT)
        return stream


@pytest.mark.parametrize("folder", ["runs", "sessions"])
def test_ctrl_c_while_an_object_is_written_leaves_it_whole(
    bucket: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RemoteStore(f"{bucket}/sweep", print)
    objects = store.mirror.objects
    monkeypatch.setattr(objects, "_files", Interrupted(objects._files))
    # Where the tests run in the background of a shell, SIGINT is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    write = functools.partial(store.append, run(0)) if folder == "runs" else functools.partial(store.add_sessions, {})
    try:
        with pytest.raises(KeyboardInterrupt):
            write()
    finally:
        signal.signal(signal.SIGINT, before)
    for thread in threading.enumerate():
        # The interrupt may arrive while the thread of the request is being started: then the write ends later.
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(60)
    (item,) = objects.list(folder)
    assert (objects.get(item) or b"").endswith(b"}\n")


@pytest.mark.parametrize("content", [b"", b'{"run_id": "a-1", "outc'])
def test_an_object_that_a_death_left_empty_or_torn_is_left_out_and_its_run_is_missing(
    uri: str, content: bytes, notes: list[str]
) -> None:
    left_by_a_death(uri, run(0))
    ObjectStore(uri).put("runs/s000001-000002-a-1-0123.jsonl", content)
    ObjectStore(uri).put("sessions/s000001-000003-0123.json", content)
    assert numbers(uri) == [0]
    with RemoteStore(uri, notes.append) as store:
        assert [item.repeat for item in store.records] == [0]
        store.append(run(1))
    assert numbers(uri) == [0, 1]


def test_many_runs_are_copied_to_a_uri_as_one_object(bucket: str, tmp_path: Path) -> None:
    uri, other = f"{bucket}/sweep", f"{bucket}/copy"
    with RemoteStore(uri, print) as store:
        store.add_sessions({"name": "first"})
        store.add_sessions({"name": "second"})
        for number in range(12):
            store.append(run(number))
    with pytest.raises(SystemExit) as ended:
        main(["copy", uri, other])
    assert ended.value.code == 0
    assert len(objects_of(other)) == 1
    assert numbers(other) == list(range(12))
    assert len(ObjectStore(other).list("sessions")) == 1


def test_a_store_that_goes_away_and_comes_back_gets_every_run(
    place: str, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_store, "_RETRY_S", 0.0)
    with RemoteStore(place, notes.append) as store:
        store.append(run(0))
        folder = path_of(place)
        folder.rename(folder.with_name("away"))
        folder.write_text("no folder")
        store.append(run(1))
        store.append(run(2))
        assert len(notes) == 1
        assert "the sweep goes on" in notes[0]
        assert store.mirror.is_kept, "a kill would leave runs here alone"
        folder.unlink()
        folder.with_name("away").rename(folder)
        store.append(run(3))
        assert notes[1:] == [f"{place} answers again, and has all runs that have ended."]
        assert len(objects_of(place)) == 4
    assert numbers(place) == [0, 1, 2, 3]
    assert not store.mirror.is_kept


def test_runs_that_cannot_be_uploaded_are_kept_and_the_note_has_the_command_that_uploads_them(
    use_s3: Callable[[S3], str], place: str, notes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_s3()
    try:
        uri = f"{use_s3(server)}/sweep"
        store = open_store(uri, notes.append)
        store.add_sessions({"axis": "lr", "axes": {"lr": [1]}})
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
    assert load(place).where == place
    with pytest.raises(SystemExit):
        main(["copy", str(store.folder), place])
    assert "0 of 2 runs added" in capsys.readouterr().out
    shutil.rmtree(store.folder)
    assert load(place).records == [run(0), run(1)]


def test_a_store_that_cannot_be_written_is_reported_before_anything_starts(place: str, notes: list[str]) -> None:
    store = RemoteStore(place, notes.append)
    path_of(place).parent.joinpath("sweep").write_text("no folder")
    with pytest.raises(StoreError, match="cannot be written"):
        store.add_sessions({})
    store.close()
    assert notes == []


def test_an_object_that_is_no_record_is_refused_by_its_name(uri: str) -> None:
    left_by_a_death(uri, run(0))
    ObjectStore(uri).put("runs/by-hand.jsonl", b"[]\n")
    with pytest.raises(StoreError, match=r"sweep/runs/by-hand.jsonl, line 1 is no record .*; remove the line, or name"):
        records(uri)


def test_a_fresh_location_is_the_first_without_a_sweep(bucket: str) -> None:
    uri = f"{bucket}/sweep"
    assert first_free_location(uri) == uri
    left_by_a_death(uri, run(0))
    assert first_free_location(uri) == numbered(uri, 2)
    with open_store(numbered(uri, 2), print) as store:
        store.append(run(0))
    assert results_location(Options(out=uri, fresh=True)) == numbered(uri, 3)
    assert records_at(numbered(uri, 3)) == []
    assert len(records_at(numbered(uri, 2))) == 1


def test_new_files_are_uploaded_and_other_objects_stay(uri: str) -> None:
    objects = ObjectStore(uri)
    objects.put("table.md", b"old")
    mirror = Mirror(uri)
    path = mirror.folder / "figures" / "new.svg"
    path.parent.mkdir()
    path.write_text("new")
    mirror.push()
    assert objects.list(deep=True) == ["figures/new.svg", "table.md"]


def test_the_local_copy_is_deleted_with_its_last_reference(bucket: str) -> None:
    place = f"{bucket}/sweep"
    left_by_a_death(place, run(0))
    found = load(place)
    assert repr(found) == f"Results({place!r}, 1 runs: 1 ok)"
    part = found.of(found.records[:1])
    folder = found.folder
    del found
    assert (folder / "runs.jsonl").exists()
    assert part.where == place
    del part
    assert not folder.exists()
