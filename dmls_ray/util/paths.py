"""The folder of caches, and paths that come with a folder from elsewhere: a check, and the opening of a file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def cache_root() -> Path:
    """The folder of downloads, decoded images and compiled kernels.

    It is $DMLS_RAY_CACHE, or `dmls_ray` in the user's cache folder.
    """
    if configured := os.environ.get("DMLS_RAY_CACHE"):
        return Path(configured).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dmls_ray"


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, with all its links followed, lies in a folder: a folder from elsewhere may contain any link."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a circle of links
        return False


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading if it is a regular file: a pipe would block the reader, and a link may lead anywhere.

    Raises:
        OSError: it is none, or cannot be opened.
    """
    _refuse_irregular(os.lstat(path), path)
    # It may have been replaced since.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb", 2**20)
    try:
        _refuse_irregular(os.fstat(file.fileno()), path)
    except OSError:
        file.close()
        raise
    return file


def _refuse_irregular(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = "a link" if stat.S_ISLNK(status.st_mode) else "no regular file"
        raise OSError(errno.EINVAL, f"it is {what}", os.fspath(path))
