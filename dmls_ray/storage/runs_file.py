"""`runs.jsonl`: one line a run, each a whole `RunRecord` with its epochs and ranks.

A line that a crash tore off is left out when reading, and cut off before the next line is written. Where a run has
several lines (a skipped run that became feasible), the last one counts. A run with another version of the user's code
or data counts as another run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from dmls_ray.records.codec import SharedObjects
from dmls_ray.records.model import SCHEMA, RunRecord
from dmls_ray.records.versions import VersionKey, version_key
from dmls_ray.util.errors import NewerSchemaError, StoreError
from dmls_ray.util.gc import gc_disabled
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
        NewerSchemaError: a record was written by a newer version.
        StoreError: a line other than a torn last one is no record. Epochs and ranks are checked at their first use.
    """
    path = Path(folder) / RUNS
    named = below(where or folder, RUNS)
    try:
        file = open(path, "rb", buffering=2**20)  # noqa: SIM115 - closed below; only errors of opening are caught here
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StoreError(f"{named} cannot be read ({error}); name another folder with --out.") from error
    shared = shared or SharedObjects()
    with file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n") and not is_complete(line):
                return
            try:
                record = RunRecord.from_json(line, shared)
                refuse_newer(record.schema, named)
                yield record
            except (ValueError, RecursionError) as error:
                refuse_newer(_schema_of(line), named)
                raise StoreError(
                    f"{named}, line {number} is no record ({type(error).__name__}: {error}); remove the line, or name "
                    "another folder with --out."
                ) from error


@gc_disabled()
def records_by_version(
    folder: str | os.PathLike[str], where: str | None = None, shared: SharedObjects | None = None
) -> dict[VersionKey, RunRecord]:
    """Return the last record of each run with each version of the user's code and data; see `read_records`."""
    records: dict[VersionKey, RunRecord] = {}
    for record in read_records(folder, where, shared):
        add_record(records, record)
    return records


def add_record(records: dict[VersionKey, RunRecord], record: RunRecord) -> None:
    """Add a record at the end, in place of an earlier one of its run and version."""
    key = version_key(record)
    records.pop(key, None)
    records[key] = record


def merge_lines(content: bytes, lines: Iterable[bytes]) -> bytes:
    """Append to the content of a runs.jsonl the lines that it lacks, each once; a torn last line is cut off."""
    last = content.rpartition(b"\n")[2]
    if last:
        content = content + b"\n" if is_complete(last) else content[: -len(last)]
    missing = {line.strip(): None for line in lines}
    if missing:
        for line in content.split(b"\n"):
            missing.pop(line, None)
    return content + b"".join(line + b"\n" for line in missing)


def cut_torn_line(path: Path) -> int:
    """Cut off what a crash left of the last line, and return the number of bytes.

    A whole record whose newline is missing, after an editor say, gets its newline back.
    """
    if not path.exists():
        return 0
    with open(path, "rb+") as file:
        content = file.read()
        end = content.rfind(b"\n") + 1
        if end == len(content):
            return 0
        if is_complete(content[end:]):
            file.write(b"\n")
            end = len(content)
        else:
            file.truncate(end)
        file.flush()
        os.fsync(file.fileno())
        return len(content) - end


def is_complete(line: bytes) -> bool:
    """Whether a line is a whole JSON object. A torn line never is, since the brace closes at its end."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def refuse_newer(schema: int, named: str, newest: int = SCHEMA) -> None:
    """Refuse a file of a newer version than `newest`.

    Raises:
        NewerSchemaError: with the file's name.
    """
    if schema > newest:
        raise NewerSchemaError(
            f"{named} has schema {schema} and this version reads up to {newest}; "
            "upgrade (pip install -U dmls_ray), or name another folder with --out."
        )


def _schema_of(line: bytes) -> int:
    """The schema of a line that is not a valid record of this version; 0 if it has none."""

    class Versioned(msgspec.Struct):
        schema: int = 0

    try:
        return msgspec.json.decode(line, type=Versioned).schema
    except (ValueError, RecursionError):
        return 0
