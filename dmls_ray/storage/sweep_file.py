"""`sweep.json`: a session for each call of a sweep, with its question, its command, its machine and its versions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from dmls_ray.records.codec import check_sweep_file
from dmls_ray.storage.runs_file import RUNS, check_schema
from dmls_ray.util.errors import StoreError
from dmls_ray.util.files import atomic_write_text, open_regular
from dmls_ray.util.uri import below

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
    path = Path(folder) / SWEEP
    where = where or str(folder)
    try:
        with open_regular(path) as file:
            return parse_sweep(file.read(), below(where, SWEEP))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"{below(where, SWEEP)} cannot be read ({reason}); {_WAY_OUT}.") from error


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
    path = Path(folder) / SWEEP
    try:
        atomic_write_text(path, sweep_text(described), durable=True)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"{path} cannot be written ({reason}); free some space, or name another folder.") from error


def sweep_text(described: Mapping[str, Any]) -> str:
    """Return the content of a sweep.json as text, with the present version as its schema."""
    content = {"schema": SWEEP_SCHEMA} | {name: value for name, value in described.items() if name != "schema"}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
