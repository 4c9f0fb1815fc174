"""A folder that is made equal to a picture of another one, where copies cost little: unchanged files are left alone.

A file is taken for unchanged by its size, its time of change and its mode, which a copy keeps.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_OPEN = 0o755
"""Mode of a folder that a run has closed."""
_FICLONE = 0x40049409
"""Request to the kernel: let a file share the blocks of another one until one of them is written."""


class Entry(NamedTuple):
    """A file, a link or a folder."""

    source: str
    """Path of the file that has the content."""
    size: int = 0
    mtime_ns: int = 0
    mode: int = 0
    """0 of a folder and of a link."""
    link: str = ""
    """Of a link: where it leads."""

    def is_like(self, other: Entry | None) -> bool:
        """Whether another entry stands for the same content."""
        return other is not None and self[1:] == other[1:]

    @property
    def is_folder(self) -> bool:
        return not self.mode and not self.link

    @classmethod
    def of_file(cls, path: str, about: os.stat_result) -> Entry:
        return cls(path, about.st_size, about.st_mtime_ns, stat.S_IMODE(about.st_mode) | stat.S_IFREG)

    @classmethod
    def of_link(cls, text: str) -> Entry:
        return cls("", link=text)


Picture = Mapping[str, Entry]
"""Path below a folder -> what is there; a folder comes before what it has."""


def picture_of(folder: Path, left_out: Collection[str] = ()) -> dict[str, Entry]:
    """All files, links and folders below a folder.

    Args:
        folder: the folder.
        left_out: names of files and folders that do not count.
    """
    return dict(_entries_in(str(folder), "", left_out))


def _entries_in(
    folder: str, prefix: str, left_out: Collection[str], *, opens: bool = False
) -> Iterator[tuple[str, Entry]]:
    """As `picture_of`; `opens`: folders that this user may not read or write in are opened first."""
    if opens and os.stat(folder).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(folder, _OPEN)
    with os.scandir(folder) as listed:
        for item in listed:
            if item.name in left_out:
                continue
            path = prefix + item.name
            if item.is_symlink():
                yield path, Entry.of_link(os.readlink(item.path))
            elif item.is_dir():
                yield path, Entry(item.path)
                yield from _entries_in(item.path, f"{path}/", left_out, opens=opens)
            else:
                yield path, Entry.of_file(item.path, item.stat(follow_symlinks=False))


def make_equal(folder: Path, wanted: Picture, left_alone: Collection[str] = ()) -> None:
    """Make a folder equal to a picture.

    Args:
        folder: the folder; it is made if it does not exist.
        wanted: the picture.
        left_alone: names of files and folders that stay as they are, but for those in a folder that is not wanted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    there = dict(_entries_in(str(folder), "", left_alone, opens=True))
    for path, entry in there.items():
        if not entry.is_like(wanted.get(path)):
            _remove(folder / path)
    for path, entry in wanted.items():
        if not entry.is_like(there.get(path)):
            # A file that has gone meanwhile is none of the picture.
            with contextlib.suppress(FileNotFoundError):
                _put(entry, str(folder / path))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _put(entry: Entry, path: str) -> None:
    if entry.link:
        os.symlink(entry.link, path)
    elif entry.is_folder:
        os.mkdir(path)
    else:
        if not _clone(entry.source, path):
            shutil.copyfile(entry.source, path)
        os.chmod(path, stat.S_IMODE(entry.mode))
        # At the end, so that a copy that was cut short is none of this file.
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))


def _clone(source: str, target: str) -> bool:
    """Make a file that shares the blocks of another one; whether the file system could."""
    if sys.platform != "linux":
        return False
    with open(source, "rb") as original, open(target, "wb") as clone:
        try:
            fcntl.ioctl(clone.fileno(), _FICLONE, original.fileno())
        except OSError:
            return False
    return True


def can_clone(source: str, folder: Path) -> bool:
    """Whether a copy of a file in a folder would share its blocks."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dmls_ray-clone-", dir=folder) as place:
        return _clone(source, os.path.join(place, "clone"))


_NEW_MOUNTS, _READ_ONLY, _REMOUNT, _BIND, _BELOW, _PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18
"""CLONE_NEWNS, and flags of mount: MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE."""


def make_read_only(paths: Sequence[str]) -> bool:
    """Let this process, and what it starts, no longer write below some paths; whether the system lets it.

    Linux lets the superuser, in a container only with the right to mount. Nothing changes for other processes.
    """
    if not paths or sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if libc.unshare(_NEW_MOUNTS) or libc.mount(None, b"/", None, _BELOW | _PRIVATE, None):
        return False
    is_bound = True
    for path in paths:
        place = os.fsencode(path)
        failed = libc.mount(place, place, None, _BIND | _BELOW, None)
        failed = failed or libc.mount(None, place, None, _BIND | _REMOUNT | _READ_ONLY, None)
        is_bound = is_bound and not failed
    return is_bound
