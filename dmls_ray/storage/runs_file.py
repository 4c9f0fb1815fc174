"""`runs.jsonl`: one line a run, each a whole `RunRecord` with its epochs and ranks.

A line that a crash tore off is left out when reading, and cut off before the next line is written. Where a run has
several lines (a skipped run that became feasible), the last one counts, unless it is a failure after an answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dmls_ray.records.codec import SharedObjects
from dmls_ray.records.model import SCHEMA, RunRecord
from dmls_ray.records.stale import after_failure, replaces
from dmls_ray.util.errors import SchemaError, StoreError
from dmls_ray.util.files import open_regular, sync_to_disk
from dmls_ray.util.interpreter import gc_disabled
from dmls_ray.util.uri import below

RUNS = "runs.jsonl"


def read_records(
    folder: str | os.PathLike[str], where: str | None = None, shared: SharedObjects | None = None
) -> Iterator[RunRecord]:
    """Yield every record in the order of its line; a torn last line is left out, a whole one without newline is not.

    Args:
        folder: the results folder.
        where: the folder's name in an error.
        shared: objects that records with equal configurations, machines, versions and commits have in common.

    Raises:
        SchemaError: a record was written by a version with another layout.
        StoreError: a line other than a torn last one is no record. Epochs and ranks are checked at their first use.
    """
    shared = shared or SharedObjects()
    named = below(where or folder, RUNS)
    with file_errors(f"{named} cannot be read", "name another folder with --out"):
        try:
            file = open_regular(Path(folder) / RUNS)
        except (FileNotFoundError, NotADirectoryError):
            return
        with file:
            for _, record in parse_lines(file, named, shared):
                yield record


def parse_lines(
    lines: Iterable[bytes], named: str, shared: SharedObjects | None = None
) -> Iterator[tuple[bytes, RunRecord]]:
    """Yield each line with its record; a torn last line and empty lines are left out.

    Args:
        lines: each with its newline.
        named: the name of the file in an error.
        shared: as of `read_records`.

    Raises:
        SchemaError, StoreError: as `read_records`.
    """
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n") and not is_complete(line):
            return
        if line.isspace():
            continue
        try:
            record = RunRecord.from_json(line, shared)
            check_schema(record.schema, SCHEMA, named)
        except (ValueError, RecursionError) as error:
            if is_complete(line):
                check_schema(json.loads(line).get("schema", SCHEMA), SCHEMA, named)
            raise StoreError(
                f"{named}, line {number} is no record ({type(error).__name__}: {error}); remove the line, or name "
                "another folder with --out."
            ) from error
        yield line, record


@gc_disabled()
def records_by_id(
    folder: str | os.PathLike[str], where: str | None = None, shared: SharedObjects | None = None
) -> dict[str, RunRecord]:
    """Return the record that counts of each run, by its run_id; see `read_records`."""
    records: dict[str, RunRecord] = {}
    for record in read_records(folder, where, shared):
        add_record(records, record)
    return records


def add_record(records: dict[str, RunRecord], record: RunRecord) -> None:
    """Add a record at the end, in place of an earlier one of its run that does not count any more.

    If the earlier one stays, a search that has proposed the run since takes that one as the answer.
    """
    earlier = records.get(record.run_id)
    if earlier is None or replaces(record, earlier):
        records.pop(record.run_id, None)
        records[record.run_id] = record if earlier is None else after_failure(record, earlier)
    elif record.proposed:
        records[record.run_id] = earlier.replace(proposed=record.proposed)


def has_runs(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder has a file with runs.

    Raises:
        StoreError: it cannot be read.
    """
    with file_errors(f"{folder} cannot be read", "name another folder"):
        return (Path(folder) / RUNS).is_file()


def append_lines(path: Path, lines: bytes) -> None:
    """Append lines; they are on the disk when this returns, or none of them is in the file.

    Raises:
        StoreError: they cannot be written: the disk is full, say.
    """
    with file_errors(f"{path} cannot be written", "free some space, or name another folder"):
        is_new = not path.exists()
        # Without a buffer, which would be written at the closing, after an error.
        with open(path, "ab", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                written = 0
                while written < len(lines):
                    written += os.write(file.fileno(), lines[written:])
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(size)  # a part of a line would be a line that cannot be read, after the next
                raise
        if is_new:
            sync_to_disk(path.parent)  # the name of a new file, too


def cut_torn_line(path: Path) -> None:
    """Cut off what a crash left of the last line.

    A whole record whose newline is missing, after an editor say, gets its newline back.

    Raises:
        StoreError: it cannot be written.
    """
    if not path.exists():
        return
    with file_errors(f"{path} cannot be written", "make it writable, or name another folder"):
        with open(path, "rb+") as file:
            content = file.read()
            end = content.rfind(b"\n") + 1
            last = content[end:]
            if not last:
                return
            if is_complete(last):
                file.write(b"\n")
            else:
                file.truncate(end)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def file_errors(what: str, way_out: str) -> Iterator[None]:
    """Turn an error of the operating system within the block into a StoreError of one line."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what} ({error.strerror or error}); {way_out}.") from error


def is_complete(line: bytes) -> bool:
    """Whether a line is a whole JSON object. A torn line never is, since the brace closes at its end."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def check_schema(schema: int, expected: int, named: str) -> None:
    """Refuse a file of another layout.

    Raises:
        SchemaError: with the file's name.
    """
    if schema != expected:
        raise SchemaError(
            f"{named} has schema {schema} and this version reads {expected}; "
            "use the version that wrote it, or name another folder with --out."
        )
