"""Which files a run reads that were there before it, and which it writes: a later run may go on from them.

Python tells its audit hooks which files are opened. What libraries write by themselves, as `torch.save` does, is seen
where it is looked for: in the working folder, and in folders that the run has made or read from.
"""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from dmls_ray.util.importing import is_installed

_MOST_ENTRIES = 5000
"""Entries of a working folder up to which it is looked at; a folder of data may have millions."""
_DEPTH = 2
"""Folders below the working folder that are looked into."""
MOST_NAMED = 20

Stamps = Mapping[str, tuple[int, int]]
"""Path of a file -> time of the last change in ns, and size in bytes."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OF_SYSTEM = tuple(
    os.path.realpath(folder) + os.sep
    for folder in ("/dev", "/proc", "/sys", "/etc", "/usr", *{sysconfig.get_path(name) for name in ("stdlib", "data")})
)
_EVENTS = frozenset(("open", "sqlite3.connect", "os.rename", "os.mkdir"))
_CODE = (".py", ".pyc", ".so")


class FileUse:
    """The files that this process reads and writes from now on.

    Args:
        place: the working folder.
        left_out: folder of the results; nothing in the part of the working folder that has it counts.
        private: folders whose files no other run has; an empty text is none.
    """

    def __init__(self, place: str, left_out: str, private: Collection[str] = ()) -> None:
        self._place, self._left_out = os.path.realpath(place), os.path.realpath(left_out)
        self._private = tuple(os.path.realpath(folder) + os.sep for folder in private if folder)
        self._began_ns = time.time_ns()
        self._before = _stamps_of(self._place, self._left_out)
        self._read: dict[str, int] = {}
        """Path -> its last change before this run, of the files with the latest ones."""
        self._latest_left_out_ns = 0
        self._noted: set[tuple[str, bool]] = set()
        """Paths as they were given, and whether for writing, that need not be looked at again."""
        self._written: dict[str, None] = {}
        self._folders: dict[str, None] = {}
        """Folders that were made, or were to be."""
        sys.addaudithook(self._audit)  # it stays until the process ends

    def _audit(self, event: str, given: tuple[Any, ...]) -> None:
        if event not in _EVENTS:
            return
        with suppress(Exception):  # the program goes on, whatever fails here
            match event, given:
                case "open", (path, _, flags):
                    self._note_open(path, flags)
                case "sqlite3.connect", (path, *_):
                    # What is written into one that was there is seen as what libraries write.
                    self._note_open(path, 0 if os.path.exists(path) else os.O_CREAT)
                case "os.rename", (source, target, *_):
                    self._note_rename(os.path.realpath(os.fsdecode(source)), os.path.realpath(os.fsdecode(target)))
                case "os.mkdir", (path, *_):
                    self._folders[os.path.realpath(os.fsdecode(path))] = None

    def _note_open(self, path: Any, flags: int) -> None:
        if isinstance(path, int):
            return  # a file that is open
        path, is_writing = os.fsdecode(path), bool(flags & _WRITING)
        if path.endswith(_CODE) or (path, is_writing) in self._noted:
            return
        if is_writing:
            self._noted.add((path, True))
            self._written[os.path.realpath(path)] = None
            return
        about = os.stat(path)
        changed_ns = about.st_mtime_ns
        if not self._latest_left_out_ns < changed_ns < self._began_ns or not stat.S_ISREG(about.st_mode):
            return
        self._noted.add((path, False))
        real = os.path.realpath(path)
        if real in self._written or not self._counts(real):
            return
        self._read[real] = changed_ns
        if len(self._read) > MOST_NAMED:
            self._latest_left_out_ns = self._read.pop(min(self._read, key=self._read.__getitem__))

    def _note_rename(self, source: str, target: str) -> None:
        moved = [path for path in self._written if path == source or path.startswith(source + os.sep)]
        for path in moved:
            del self._written[path]
            self._written[target + path.removeprefix(source)] = None
        self._written[target] = None

    def read(self) -> list[str]:
        """The files that were read and that this run has not written before, at most 20, those that changed last."""
        return self._named(self._read)

    def written(self) -> list[str]:
        """The files that are new or have changed and that other runs may find, the first in the order of their names,
        those in the working folder first.
        """
        return self._named([path for path in self._all_written() if not path.startswith(self._private)])

    def written_in_private(self) -> list[str]:
        """Those that no other run finds."""
        return self._named([path for path in self._all_written() if path.startswith(self._private)])

    def _named(self, paths: Collection[str]) -> list[str]:
        inside = [path for path in paths if path.startswith(self._place + os.sep)]
        named = sorted(os.path.relpath(path, self._place) for path in inside)
        return [*named, *sorted({*paths} - {*inside})][:MOST_NAMED]

    def _all_written(self) -> set[str]:
        found = {path for path in self._written if self._counts(path)}
        after = _stamps_of(self._place, self._left_out)
        if self._before is not None and after is not None:
            found |= {path for path, stamp in after.items() if self._before.get(path) != stamp}
        for folder in {*self._folders, *[os.path.dirname(path) for path in self._read]}:
            files = _stamps_of(folder, self._left_out, depth=0) or {}
            for path, (changed_ns, _) in files.items():
                if changed_ns >= self._began_ns and self._counts(path):
                    found.add(path)
        # An empty file, as a lock, has nothing to go on from.
        return {path for path in found if os.path.isfile(path) and os.path.getsize(path)}

    def _counts(self, path: str) -> bool:
        """Whether a file is one of the user's, and no cache, code, part of the system or of the results."""
        inside = [folder for folder in (self._place + os.sep, *self._private) if path.startswith(folder)]
        if not inside and path.startswith((*_OF_SYSTEM, self._left_out + os.sep)):
            return False
        place = inside[0] if inside else os.sep
        parts = os.path.relpath(path, place).split(os.sep)
        is_hidden = any(part.startswith((".", "__pycache__")) for part in parts)
        is_of_results = bool(inside) and _contains(os.path.join(place, parts[0]), self._left_out)
        return not (is_hidden or is_of_results or is_installed(path))


def _stamps_of(folder: str, left_out: str, depth: int = _DEPTH) -> Stamps | None:
    """The files of a folder and the folders in it, without hidden ones; None where there are too many."""
    found: dict[str, tuple[int, int]] = {}
    folders, entries = [(folder, 0)], 0
    while folders:
        here, below = folders.pop()
        # What cannot be read, or is gone by now, was not written by a run that has just ended.
        with suppress(OSError), os.scandir(here) as listed:
            for entry in listed:
                entries += 1
                if entries > _MOST_ENTRIES:
                    return None
                hidden = entry.name.startswith((".", "__pycache__"))
                if hidden or _contains(entry.path, left_out) or entry.is_symlink():
                    continue
                if entry.is_dir() and below < depth:
                    folders.append((entry.path, below + 1))
                elif entry.is_file():
                    about = entry.stat()
                    found[entry.path] = about.st_mtime_ns, about.st_size
    return found


def _contains(folder: str, path: str) -> bool:
    """Whether a path is a folder, or lies in it."""
    return path == folder or path.startswith(folder + os.sep)
