from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.records.model import SCHEMA
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.stale import after_failure
from dmls_ray.storage.folder import SWEEP_SCHEMA, read_sweep, write_file
from dmls_ray.storage.location import first_free_location, open_store
from dmls_ray.storage.store import Store
from dmls_ray.util.errors import SchemaError, StoreError, StoreInUseError
from tests.records.test_model import record
from tests.storage.remote import latest_records, run


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what was written to the disk, in this order."""
    paths: list[str] = []
    sync = os.fsync

    def note_sync(handle: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", note_sync)
    return paths


def test_a_run_is_on_the_disk_when_it_has_been_added_and_so_is_the_name_of_a_new_file(
    tmp_path: Path, synced: list[str]
) -> None:
    with Store(tmp_path) as store:
        synced.clear()
        store.append(run(0))
        assert synced == [f"{tmp_path}/runs.jsonl", str(tmp_path)]
        store.append(run(1))
    assert synced[2:] == [f"{tmp_path}/runs.jsonl"]


def test_a_session_is_on_the_disk_when_it_has_been_added(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def note_replace(source: Path, target: Path) -> None:
        assert synced == [str(source)], "the content comes first"
        replace(source, target)

    monkeypatch.setattr(os, "replace", note_replace)
    with Store(tmp_path) as store:
        synced.clear()
        store.add_sessions({"command": ["python", "a.py", "--out", "my results"], "trials": ["a", "b"]})
    assert synced[1:] == [str(tmp_path)], "then the name"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b'\n{"run_id": "a-1", "outc'),  # a line that a death tore
        (b"", b""),  # a last line that lacks only its newline, as an editor may leave it
        (b"\n", b"\n\n  \n\t"),  # blank lines, as an editor or `cat a b` may leave them
    ],
)
def test_what_is_no_whole_line_is_left_out_and_hides_no_run(tmp_path: Path, before: bytes, after: bytes) -> None:
    with Store(tmp_path / "new" / "folder") as store:
        store.append(run(0))
    path = store.folder / "runs.jsonl"
    path.write_bytes(before + path.read_bytes().rstrip() + after)
    assert latest_records(store.folder) == [run(0)]
    with Store(store.folder) as store:
        assert store.records == [run(0)]
        store.append(run(2))
    assert latest_records(store.folder) == [run(0), run(2)]


@pytest.mark.parametrize("line", ["no json", "[]", '{"run_id": "a-0"}', '{"outcome": "fine"}'])
def test_a_whole_line_that_is_no_record_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    with Store(tmp_path) as store:
        store.append(run(0))
    with open(tmp_path / "runs.jsonl", "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(StoreError, match=r"runs.jsonl, line 2 is no record"):
        Store(tmp_path)
    (tmp_path / "runs.jsonl").unlink()
    Store(tmp_path).close()  # the refusal has released the folder


def test_a_newer_schema_is_refused_with_the_way_out(tmp_path: Path) -> None:
    newer = {**run(0).to_dict(), "schema": SCHEMA + 1}
    (tmp_path / "runs.jsonl").write_text(json.dumps(newer) + "\n")
    with pytest.raises(SchemaError, match=rf"schema {SCHEMA + 1}.*reads {SCHEMA}; use the version"):
        Store(tmp_path)
    (tmp_path / "sweep.json").write_text(json.dumps({"schema": SWEEP_SCHEMA + 1}))
    with pytest.raises(SchemaError, match="use the version"):
        read_sweep(tmp_path)


@pytest.mark.parametrize("target", ["theirs", "not there"])
def test_a_link_in_place_of_the_lock_is_refused_and_not_followed(target: str, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("kept")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".lock").symlink_to(tmp_path / target)
    with pytest.raises(StoreError, match=r"cannot be written to .*\.lock.*name another"):
        Store(tmp_path / "out")
    assert (tmp_path / "theirs").read_text() == "kept"
    assert not (tmp_path / "not there").exists()


def test_what_no_file_of_json_can_hold_is_kept_as_it_can_and_what_it_cannot_is_not_written(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append(record(run_id="a-0", reason="lone \ud800 surrogate"))
        with pytest.raises(ValueError, match="9223372036854775807|out of range"):
            store.append(record(run_id="a-1", metrics={"big": 10**400}))
    assert [item.reason for item in latest_records(tmp_path)] == ["lone ? surrogate"]


def test_a_fresh_folder_is_the_first_without_a_sweep(tmp_path: Path) -> None:
    first = tmp_path / "sweep"
    assert first_free_location(first) == first
    for expected in ("sweep-2", "sweep-3"):
        with Store(first_free_location(first)) as store:
            store.append(run(0))
        assert first_free_location(first) == tmp_path / expected
    assert latest_records(first) == [run(0)]


def test_a_folder_with_an_invalid_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be a folder"):
        first_free_location(tmp_path / ("x" * 300))
    (tmp_path / "runs.jsonl").mkdir()
    with pytest.raises(StoreError, match="cannot be read"):
        Store(tmp_path)


@pytest.mark.parametrize(
    "text", ["[]", "3", '{"schema": "new"}', '{"sessions": 3}', '{"sessions": [3]}', '{"sessions": [{"axes": [1]}]}',
             '{"sessions": [{"axes": {"lr": 1}}]}', "{"]
)  # fmt: skip
def test_a_sweep_file_that_describes_none_is_refused_with_the_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(StoreError, match=r"sweep.json .*; remove it: the runs themselves are in runs.jsonl"):
        read_sweep(tmp_path)


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    with open_store(tmp_path, print), pytest.raises(StoreInUseError, match="in use by another process"):
        open_store(str(tmp_path), print)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "runs.jsonl")
    with pytest.raises(StoreError, match="holds no runs.jsonl"):
        load(tmp_path)
    with pytest.raises(StoreError, match="it is no regular file"):
        open_store(tmp_path, print)


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_a_run_that_does_not_fit_on_the_disk_leaves_no_part_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    write = os.write

    def write_half(handle: int, content: bytes) -> int:
        if len(content) < 100:
            raise full
        return write(handle, content[: len(content) // 2])

    def sync(handle: int) -> None:
        raise full

    with Store(tmp_path) as store:
        store.append(run(0))
        with monkeypatch.context() as patch:
            patch.setattr(os, fails, write_half if fails == "write" else sync)
            with pytest.raises(StoreError, match=r"runs.jsonl cannot be written \(No space left on device\)"):
                store.append(run(1))
        assert store.records == [run(0)]
        store.append(run(2))
    assert latest_records(tmp_path) == [run(0), run(2)]


def test_a_file_of_a_folder_that_does_not_fit_on_the_disk_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sweep.toml"
    write_file(file, "before")

    def sync(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(StoreError, match=r"sweep.toml cannot be written \(No space left on device\); free some space"):
        write_file(file, "after")
    assert file.read_text() == "before"


def test_a_failure_replaces_no_answer_but_one_that_did_not_suffice(tmp_path: Path) -> None:
    searched, stopped = (
        record(run_id="a-2", mode="search"),
        record(run_id="a-3", mode="search", metrics={"stopped_epoch": 1}),
    )
    failed = [
        run(0, Outcome.KILLED),
        run(1, Outcome.KILLED),
        record(run_id="a-2", outcome=Outcome.KILLED),
        record(run_id="a-3", outcome=Outcome.KILLED, mode="search"),
    ]
    with Store(tmp_path) as store:
        for item in (run(0), run(1, Outcome.ERROR), searched, stopped, *failed):
            store.append(item)
        expected = [run(0), after_failure(failed[1], run(1, Outcome.ERROR)), *failed[2:]]
        assert store.records == expected
    assert latest_records(tmp_path) == expected


@pytest.mark.parametrize(
    ("before", "code", "is_known"), [("error", {}, True), ("error", {"a": "1"}, False), ("killed", {}, False)]
)
def test_a_run_that_ended_ok_after_its_program_had_failed_says_so(
    tmp_path: Path, before: str, code: dict[str, str], *, is_known: bool
) -> None:
    with Store(tmp_path) as store:
        for item in (run(0, Outcome(before)), run(0, Outcome(before)), run(0).replace(code=code)):
            store.append(item)
        (present,) = store.all_records
    (read,) = latest_records(tmp_path)
    assert read == present
    failures = [attempt["outcome"] for attempt in read.earlier_attempts]
    assert (read.outcome, failures) == (Outcome.OK, ["error", "error"] if is_known else [])
    assert read.attempts == 1 + len(failures)


def test_a_search_takes_the_answer_of_a_benchmark_for_its_own_run_that_ended_later(tmp_path: Path) -> None:
    measured, proposed = run(0), {"lr": 0.1}
    with Store(tmp_path) as store:
        store.append(measured)
        store.append(record(run_id="a-0", repeat=0, mode="search", metrics={"test_accuracy": 0.1}, proposed=proposed))
        assert store.records == [measured.replace(proposed=proposed)]
    assert latest_records(tmp_path) == [measured.replace(proposed=proposed)]
