"""Files and folders below results/<sweep>/tensorboard. No function here follows a symbolic link."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

FOLDER = "tensorboard"
"""Folder of the event files within a results folder."""

_UNFINISHED = "unfinished"
"""File in the folder of a run that is not completely written."""

_WRITTEN_HERE = re.compile(rf"events\.out\.tfevents\.\d+\.[0-9a-f]{{12}}(\.rewritten)?|{_UNFINISHED}")
"""Names of the files that this package writes. Other files are never removed."""


def file_name(wall_time: float, key: str) -> str:
    """Name of an event file.

    Args:
        wall_time: when the file begins, in seconds since 1970.
        key: 12 hex digits of what the file begins with.
    """
    return f"events.out.tfevents.{max(int(wall_time), 0):010}.{key}"


def append(path: Path, content: bytes) -> None:
    """Append to a file, in one write; make the file and its folder if they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666)) as file:
        file.write(content)


def begin(folder: Path) -> None:
    """Remove the event files of a run, and mark its folder as not completely written."""
    clear(folder)
    append(folder / _UNFINISHED, b"")


def mark_finished(folder: Path) -> None:
    """Remove the mark of a folder that is not completely written."""
    (folder / _UNFINISHED).unlink(missing_ok=True)


def is_finished(path: Path) -> bool:
    """Whether an event file exists and its folder is completely written."""
    if path.parent.is_symlink() or (path.parent / _UNFINISHED).exists():
        return False
    files = list(path.parent.glob(f"{path.name}*"))
    return bool(files) and not any(path.is_symlink() for path in files)


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, without symbolic links."""
    return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()] if folder.exists() else []


def clear(folder: Path) -> None:
    """Remove the event files of a run, and its folder unless it has other files.

    Of a symbolic link only the link is removed.
    """
    ranks = () if folder.is_symlink() else folder.glob("rank-*")
    for part in (*ranks, folder):
        if part.is_symlink():
            part.unlink()
            continue
        for path in [path for path in part.glob("*") if _WRITTEN_HERE.fullmatch(path.name)]:
            path.unlink()
        with suppress(OSError):  # the folder has other files, or does not exist
            part.rmdir()
