"""`sweep.json`: a session for each call of a sweep, with its question, its command, its machine and its versions."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmls_ray.records.validation import check_sweep_file
from dmls_ray.storage.runs_file import RUNS, refuse_newer
from dmls_ray.util.atomic import atomic_write_text
from dmls_ray.util.errors import StoreError
from dmls_ray.util.uri import below

SWEEP = "sweep.json"

SWEEP_SCHEMA = 2
"""Version of the file's layout. In version 1 the command and the ids of the trials were one text each."""


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
    refuse_newer(described.get("schema", 0), named, newest=SWEEP_SCHEMA)
    return described


def write_sweep(folder: str | os.PathLike[str], described: Mapping[str, Any]) -> None:
    """Write sweep.json, whole or not at all, with the present version as its schema."""
    content = {"schema": SWEEP_SCHEMA} | {name: value for name, value in described.items() if name != "schema"}
    atomic_write_text(Path(folder) / SWEEP, json.dumps(content, indent=1, allow_nan=False) + "\n")


def command_words(session: Mapping[str, Any]) -> list[str]:
    """Return the words of a session's command; empty where there is none, as in a notebook."""
    command = session.get("command") or []
    return command.split() if isinstance(command, str) else list(command)


def command_line(session: Mapping[str, Any]) -> str:
    """Return a session's command as a shell takes it; empty where there is none."""
    command = session.get("command") or []
    return command if isinstance(command, str) else shlex.join(command)


def trial_ids(session: Mapping[str, Any]) -> list[str]:
    """Return the ids of the trials that a session asked for; empty for a search, and in the oldest files."""
    trials = session.get("trials") or []
    return trials.split() if isinstance(trials, str) else list(trials)
