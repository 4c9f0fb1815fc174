"""`TemporaryFolder`: a folder that is removed with its owner's work, or, where the owner was killed, by a later one.

Sockets need folders with a short path: the system limits their paths to about a hundred bytes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path

from filelock import FileLock, Timeout

PREFIX = "dmls_ray-"
"""Start of the name of every folder that is made here."""

_LOCK = ".in_use"
"""Another name than that of the lock of a results folder, which may be such a folder."""


class TemporaryFolder:
    """A new folder in the system's folder for temporary files, which no other user can enter.

    This process holds a lock on a file in the folder until the folder is removed or the process ends, in whichever way.
    Making a folder removes those of this user whose owners have ended without removing them.

    Args:
        kind: stands in the name of the folder.
        parent: another folder for it.
    """

    def __init__(self, kind: str, parent: Path | None = None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        remove_abandoned(parent)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=parent))
            self._lock = FileLock(self.path / _LOCK, mode=0o600, thread_local=False)
            # Another process may see the file before its lock, and remove the folder.
            with contextlib.suppress(Timeout):
                self._own()
                return

    def _own(self) -> None:
        self._lock.acquire(timeout=0)
        # As `tempfile.TemporaryDirectory`: also at the end of the interpreter.
        self._at_end = weakref.finalize(self, _remove, self.path, self._lock, os.getpid())

    def remove(self) -> None:
        """Remove the folder with its contents."""
        self._at_end()

    def keep(self, kept: bool = True) -> None:
        """Let the folder outlive this process, since it holds what is nowhere else; or no longer."""
        if not kept:
            self._own()
        elif self._at_end.detach():
            # A folder without a lock is removed by no other process.
            (self.path / _LOCK).unlink()
            self._lock.release(force=True)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of this user whose owners have ended without removing them."""
    for lock in parent.glob(f"{PREFIX}*/{_LOCK}"):
        folder = lock.parent
        # Most have an owner that holds the lock; others are of other users.
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with FileLock(lock, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, lock: FileLock, owner: int) -> None:
    """Remove a folder; in a fork of its owner, nothing."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            # A process that is about to end has written into it: a later owner of a folder removes it.
            (folder / _LOCK).touch()
        lock.release(force=True)


_LONGEST = 103 if sys.platform == "darwin" else 107


def short_folder(usual: Path, below: str) -> Path:
    """A folder for temporary files: the usual one, or /tmp where its path has no room for sockets.

    Args:
        usual: the folder to use where its path is short enough.
        below: the path that a socket has below the folder.
    """
    has_room = len(os.fsencode(usual)) + len(os.fsencode(below)) <= _LONGEST
    return usual if has_room else Path("/tmp")
