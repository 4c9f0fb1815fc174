"""`sweep.json`: a session for each call of a sweep, with its question, its command, its machine and its versions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmls_ray.records.validation import check_sweep_file
from dmls_ray.storage.runs_file import RUNS, refuse_newer
from dmls_ray.util.atomic import atomic_write_text
from dmls_ray.util.errors import StoreError
from dmls_ray.util.uri import below

SWEEP = "sweep.json"


def read_sweep(folder: str | os.PathLike[str], where: str | None = None) -> dict[str, Any]:
    """Return the content of sweep.json; empty where there is none. `where` is the folder's name in an error.

    Raises:
        NewerSchemaError: the file was written by a newer version.
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
    refuse_newer(described.get("schema", 0), named)
    return described


def write_sweep(folder: str | os.PathLike[str], described: Mapping[str, Any]) -> None:
    """Write sweep.json, whole or not at all."""
    atomic_write_text(Path(folder) / SWEEP, json.dumps(described, indent=1, allow_nan=False) + "\n")
