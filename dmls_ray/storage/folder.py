"""A results folder: `runs.jsonl`, one fsynced line a run, is the only truth about what is done.

    results/batch_size/
        runs.jsonl    append-only; each line is a whole `RunRecord` with its epochs and ranks
        sweep.json    what was asked, when, on which machine, with which versions
        runs.csv, ranks.csv, epochs.csv, runs.parquet, table.md    made anew from runs.jsonl by `analysis`
        tensorboard/    likewise; and while runs go on, what they tell

At a URI (s3://, file://, ...) a run is an object of its own until its sweep ends: see `mirror` and `remote`.

A line that a crash tore off is left out when reading and cut off before the next is written. Where a run has
several lines (a skipped one that became feasible), the last one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout

from dmls_ray.records.codec import SharedObjects
from dmls_ray.records.model import SCHEMA, RunRecord
from dmls_ray.records.validation import SHARED_CHECKS, check_sweep_file
from dmls_ray.util.atomic import atomic_write_text, sync_to_disk
from dmls_ray.util.errors import NewerSchemaError, StoreError, StoreInUseError
from dmls_ray.util.gc import gc_disabled
from dmls_ray.util.uri import below

RUNS = "runs.jsonl"
SWEEP = "sweep.json"


class Store:
    """A results folder that this process writes to; no other can meanwhile.

    Use it as a context manager, or call `close`.

    Raises:
        StoreInUseError: another process writes to the folder.
        NewerSchemaError: the folder was written by a newer version.
        StoreError: the folder or a line in it cannot be read.
    """

    def __init__(self, folder: str | os.PathLike[str], *, where: str | None = None) -> None:
        self.folder = Path(folder)
        self.where = where or str(folder)
        """What it is called: the URI that a folder stands for."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"--out {folder} cannot be made a folder ({error}); name another.") from error
        self._lock = FileLock(str(self.folder / ".lock"))
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise StoreInUseError(
                f"--out {folder} is in use by another process; wait for it, end it, or name another folder."
            ) from error
        except OSError as error:
            raise StoreError(f"--out {folder} cannot be written to ({error}); name another.") from error
        try:
            self._shared = SharedObjects(SHARED_CHECKS)
            self._records = _latest(self.folder, where, self._shared)
            self.cut_bytes = _cut_torn_line(self.folder / RUNS)
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def records(self) -> list[RunRecord]:
        """One record a run, the last that was written of each."""
        return list(self._records.values())

    def append(self, record: RunRecord) -> bytes:
        """Add a run; when this returns, its line, which is returned, is on the disk."""
        line = record.to_json() + b"\n"
        # Kept as if it was read, which needs little memory. A record that could not be read is not written.
        kept = RunRecord.from_json(line, self._shared)
        path = self.folder / RUNS
        is_new = not path.exists()
        with open(path, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_to_disk(self.folder)  # a new file's name, too
        self._records[record.run_id] = kept
        return line

    def add_session(self, session: Mapping[str, Any]) -> None:
        """Note in sweep.json what this call asked for."""
        described = read_sweep(self.folder)
        described["schema"] = SCHEMA
        described["sessions"] = [*described.get("sessions", []), dict(session)]
        atomic_write_text(self.folder / SWEEP, dump_sweep(described))

    def close(self) -> None:
        """Let other processes write."""
        self._lock.release()


def read_records(
    folder: str | os.PathLike[str], where: str | None = None, shared: SharedObjects | None = None
) -> Iterator[RunRecord]:
    """Every record in the order it was written; a torn last line is left out, a whole one without its newline is not.

    Args:
        folder: the results folder.
        where: what an error calls it.
        shared: what records with equal configurations, machines, versions and commits have in common.

    Raises:
        NewerSchemaError: a record was written by a newer version.
        StoreError: a line other than a torn last one is no record; of its epochs and ranks that is found when they are
            asked for.
    """
    path = Path(folder) / RUNS
    named = below(where or folder, RUNS)
    try:
        file = open(path, "rb", buffering=2**20)  # noqa: SIM115 - closed below; what opening it may raise is told apart
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StoreError(f"{named} cannot be read ({error}); name another folder with --out.") from error
    shared = shared or SharedObjects(SHARED_CHECKS)
    with file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n") and not is_complete(line):
                return
            try:
                record = RunRecord.from_json(line, shared)
                _refuse_newer(record.schema, named)
                yield record
            except (ValueError, RecursionError) as error:
                _refuse_newer(_schema_of(line), named)
                raise StoreError(
                    f"{named}, line {number} is no record ({type(error).__name__}: {error}); remove the line, or name "
                    "another folder with --out."
                ) from error


def latest_records(folder: str | os.PathLike[str], where: str | None = None) -> list[RunRecord]:
    """One record a run, the last of each; `where` is what an error calls the folder.

    Raises:
        StoreError: the folder holds no sweep, or as `read_records`.
    """
    try:
        is_there = (Path(folder) / RUNS).is_file()
    except OSError as error:
        raise StoreError(f"{folder} cannot be read ({error}); name another folder.") from error
    if not is_there:
        raise StoreError(f"{where or folder} holds no {RUNS}; name the folder of a sweep, results/batch_size, say.")
    return list(_latest(folder, where).values())


@gc_disabled()
def _latest(
    folder: str | os.PathLike[str], where: str | None = None, shared: SharedObjects | None = None
) -> dict[str, RunRecord]:
    """run_id -> the last record of the run."""
    return {record.run_id: record for record in read_records(folder, where, shared)}


def dump_sweep(described: Mapping[str, Any]) -> str:
    """What sweep.json holds."""
    return json.dumps(described, indent=1, allow_nan=False) + "\n"


def read_sweep(folder: str | os.PathLike[str], where: str | None = None) -> dict[str, Any]:
    """What sweep.json says; empty where there is none. `where` is what an error calls the folder.

    Raises:
        NewerSchemaError: it was written by a newer version.
        StoreError: it cannot be read.
    """
    path = Path(folder) / SWEEP
    named = below(where or folder, SWEEP)
    try:
        if not path.is_file():
            return {}
        described: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{named} cannot be read ({error}); remove it: the runs themselves are in {RUNS}.") from error
    try:
        check_sweep_file(described)
    except ValueError as error:
        raise StoreError(
            f"{named} describes no sweep ({error}); remove it: the runs themselves are in {RUNS}."
        ) from error
    _refuse_newer(described.get("schema", 0), named)
    return described


def first_free_folder(folder: str | os.PathLike[str]) -> Path:
    """The first of FOLDER, FOLDER-2, FOLDER-3, ... that holds no sweep."""
    first = Path(folder)
    if not first.name:  # `.` has no name to add a number to
        first = first.resolve()
    candidate, number = first, 1
    try:
        while (candidate / RUNS).exists() or (candidate / SWEEP).exists():
            number += 1
            candidate = first.with_name(f"{first.name}-{number}")
    except OSError as error:
        raise StoreError(f"--out {folder} cannot be a folder ({error}); name another.") from error
    return candidate


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder with all that its links lead to: a folder from elsewhere may hold any."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # links in a circle
        return False


def _schema_of(line: bytes) -> int:
    """The schema of a line that is not a valid record of this version; 0 if it has none."""

    class Versioned(msgspec.Struct):
        schema: int = 0

    try:
        return msgspec.json.decode(line, type=Versioned).schema
    except (ValueError, RecursionError):
        return 0


def _refuse_newer(schema: int, named: str) -> None:
    if schema > SCHEMA:
        raise NewerSchemaError(
            f"{named} has schema {schema} and this version reads up to {SCHEMA}; "
            "upgrade (pip install -U dmls_ray), or name another folder with --out."
        )


def _cut_torn_line(path: Path) -> int:
    """Cut off what a crash left of the last line; returns how many bytes that was.

    A whole record whose newline is missing, after an editor say, gets its newline back.
    """
    if not path.exists():
        return 0
    with open(path, "rb+") as file:
        text = file.read()
        whole = text.rfind(b"\n") + 1
        if whole == len(text):
            return 0
        if is_complete(text[whole:]):
            file.write(b"\n")
            whole = len(text)
        else:
            file.truncate(whole)
        file.flush()
        os.fsync(file.fileno())
        return len(text) - whole


def is_complete(line: bytes) -> bool:
    """Whether a line is all of a JSON object: a torn one never is, since its brace closes at the end."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
