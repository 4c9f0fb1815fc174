"""Files with runs or sessions that no process changes: the objects of a results folder at a URI.

A folder has them that was copied from a URI with a tool of its object store.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from dmls_ray.util.errors import StoreError
from dmls_ray.util.paths import open_regular

RUNS_DIR: Literal["runs"] = "runs"
"""The folder of files with lines of a runs.jsonl; it also has a folder for the log and other files of each run."""

SESSIONS_DIR: Literal["sessions"] = "sessions"
"""The folder of files like a sweep.json."""

_SUFFIXES = {
    RUNS_DIR: (".jsonl", ".json"),  # .json: of an earlier version, with one run
    SESSIONS_DIR: (".json",),
}


def is_separate_file(subfolder: Literal["runs", "sessions"], name: str) -> bool:
    """Whether a file in one of the two folders has runs or sessions, by its name."""
    return name.endswith(_SUFFIXES[subfolder])


def separate_files(folder: str | os.PathLike[str], subfolder: Literal["runs", "sessions"]) -> dict[str, Path]:
    """Return these files by name within the folder, in the order in which they were written.

    Only regular files: a pipe would block the reader, and a link may lead anywhere.

    Raises:
        StoreError: the folder cannot be read.
    """
    place = Path(folder) / subfolder
    try:
        if place.is_symlink():
            return {}
        with os.scandir(place) as entries:
            names = [
                item.name
                for item in entries
                if is_separate_file(subfolder, item.name) and item.is_file(follow_symlinks=False)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise StoreError(f"{place} cannot be read ({error}); name another folder.") from error
    return {f"{subfolder}/{name}": place / name for name in sorted(names)}


def read_separate_files(folder: str | os.PathLike[str], subfolder: Literal["runs", "sessions"]) -> dict[str, bytes]:
    """Return the contents of `separate_files`, by name within the folder.

    Raises:
        StoreError: one of them cannot be read.
    """
    contents = {}
    for name, path in separate_files(folder, subfolder).items():
        try:
            with open_regular(path) as file:
                contents[name] = file.read()
        except OSError as error:
            raise StoreError(f"{path} cannot be read ({error}); name another folder.") from error
    return contents
