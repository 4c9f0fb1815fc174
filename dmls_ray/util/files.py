"""Files: atomic writing, safe opening, and the folder of caches."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def atomic_write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a file so that a reader finds the old one or the new one, never a part; see `atomic_replace`."""
    with atomic_replace(path, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def atomic_replace(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary name; the file written there replaces `path` at the end of the block.

    If the block fails, the temporary file is deleted. Each call has its own name, so several processes can replace the
    same file at the same time; the last one wins.

    Args:
        path: the file.
        durable: return only when the file is on the disk. Without it, a power failure may leave an empty file.
    """
    temporary = path.with_name(temporary_name(path.name))
    try:
        yield temporary
        if durable:
            sync_to_disk(temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_to_disk(path.parent)


TEMPORARY_SUFFIX = ".new"
"""End of the name of a file that is still being written."""


def temporary_name(name: str) -> str:
    """A name, used by no other call, for a file that is to be renamed to `name`."""
    return f".{name}.{uuid.uuid4().hex[:12]}{TEMPORARY_SUFFIX}"


def sync_to_disk(path: str | os.PathLike[str]) -> None:
    """Flush a file to the disk, or the entries of a folder: a new file's name is safe only after its folder's flush."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
    if stat.S_ISLNK(os.lstat(path).st_mode):
        raise OSError(errno.EINVAL, "it is a link", os.fspath(path))
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    return os.fdopen(handle, "rb", 2**20)
