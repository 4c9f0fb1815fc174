"""A results folder: `runs.jsonl`, one fsynced line a run, is the only truth about what is done.

    results/batch_size/
        runs.jsonl    append-only; each line is a whole `RunRecord`, see `runs_file`
        sweep.json    what was asked, when, on which machine, with which versions; a session for each call
        runs.csv, ranks.csv, epochs.csv, runs.parquet, table.md    derived from runs.jsonl by `analysis`
        tensorboard/    likewise; during a sweep, also the epochs of its runs
        .progress.json    while runs go on: how far they are, see `progress`

At a URI (s3://, ...) each run is an object: see `remote_store`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from dmls_ray.records.codec import check_sweep_file
from dmls_ray.records.stale import SplitRecords, split_stale
from dmls_ray.storage.runs_file import (
    RUNS,
    check_schema,
    file_errors,
    has_runs,
    records_by_id,
)
from dmls_ray.util.errors import StoreError
from dmls_ray.util.files import atomic_write_text, open_regular
from dmls_ray.util.uri import below


def read_folder(folder: str | os.PathLike[str], where: str | None = None) -> SplitRecords:
    """Return the records of a folder, by whether they are stale; `where` is the folder's name in an error.

    Raises:
        StoreError: the folder contains no sweep, or as `read_records`.
    """
    if not has_runs(folder):
        raise StoreError(
            f"{where or folder} holds no {RUNS}; name the folder of a sweep, for example results/batch_size."
        )
    records = records_by_id(folder, where).values()
    return split_stale(records, read_sweep(folder, where).get("sessions", []))


SWEEP = "sweep.json"

SWEEP_SCHEMA = 2
"""Version of the file's layout."""

_WAY_OUT = f"remove it: the runs themselves are in {RUNS}"


def read_sweep(folder: str | os.PathLike[str], where: str | None = None) -> dict[str, Any]:
    """Return the content of sweep.json; empty where there is none.

    Args:
        folder: the results folder.
        where: the folder's name in an error.

    Raises:
        SchemaError: a file was written by a version with another layout.
        StoreError: one cannot be read.
    """
    named = below(where or folder, SWEEP)
    with file_errors(f"{named} cannot be read", _WAY_OUT):
        try:
            with open_regular(Path(folder) / SWEEP) as file:
                return parse_sweep(file.read(), named)
        except (FileNotFoundError, NotADirectoryError):
            return {}


def parse_sweep(content: bytes, named: str) -> dict[str, Any]:
    """Return the content of a sweep.json, checked.

    Raises:
        SchemaError, StoreError: as `read_sweep`, with the file's name.
    """
    try:
        described: dict[str, Any] = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{named} cannot be read ({error}); {_WAY_OUT}.") from error
    try:
        check_sweep_file(described)
    except ValueError as error:
        raise StoreError(f"{named} describes no sweep ({error}); {_WAY_OUT}.") from error
    check_schema(described.get("schema", SWEEP_SCHEMA), SWEEP_SCHEMA, named)
    return described


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def write_sweep(folder: str | os.PathLike[str], described: Mapping[str, Any]) -> None:
    """Write sweep.json, whole or not at all, with the present version as its schema.

    Raises:
        StoreError: it cannot be written: the disk is full, say.
    """
    write_file(Path(folder) / SWEEP, sweep_text(described))


def write_file(path: Path, text: str) -> None:
    """Write a file of a results folder, whole or not at all.

    Raises:
        StoreError: it cannot be written: the disk is full, say.
    """
    with file_errors(f"{path} cannot be written", "free some space, or name another folder"):
        atomic_write_text(path, text, durable=True)


def sweep_text(described: Mapping[str, Any]) -> str:
    """Return the content of a sweep.json as text, with the present version as its schema."""
    content = {"schema": SWEEP_SCHEMA} | {name: value for name, value in described.items() if name != "schema"}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
