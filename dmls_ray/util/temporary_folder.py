"""`TemporaryFolder`: a folder that is removed with its owner's work, or, where the owner was killed, by a later one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

PREFIX = "dmls_ray-"
"""Start of the name of every folder that is made here."""

_LOCK = ".in_use"
"""Another name than that of the lock of a results folder, which may be such a folder."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""Errors of a file system without locks: folders on it are removed by their owners only."""


class OwnedFolder:
    """A folder that this process is to remove.

    It holds a lock on a file in the folder until the folder is removed or the process ends, in whichever way.

    Args:
        path: the folder.

    Raises:
        OSError: it is no folder of this user, or another process holds its lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = _Held(path, create=True)
        # As `tempfile.TemporaryDirectory`: also at the end of the interpreter.
        self._at_end = weakref.finalize(self, self._held.remove)

    def remove(self) -> None:
        """Remove the folder with its contents."""
        self._at_end.detach()
        self._held.remove()

    def keep(self, kept: bool = True) -> None:
        """Let the folder outlive this process, since it holds what is nowhere else; or no longer."""
        if kept:
            self._at_end.detach()
            # A folder without a lock is removed by no other process.
            self._held.unlock()
        else:
            self._held.lock(create=True)
            self._at_end = weakref.finalize(self, self._held.remove)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()


class TemporaryFolder(OwnedFolder):
    """A new folder in the system's folder for temporary files, which no other user can enter.

    Making one removes those of this user whose owners have ended without removing them.

    Args:
        kind: stands in the name of the folder.
        parent: another folder for it.
    """

    def __init__(self, kind: str, parent: Path | None = None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        remove_abandoned(parent, f"{PREFIX}*")
        while True:
            # Another process may see the file before its lock, and remove the folder.
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                super().__init__(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=parent)))
                return


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Remove the folders of this user whose owners have ended without removing them."""
    for entry in parent.glob(pattern):
        # Most have no lock, or their owner has it; others are no folders, or of other users.
        with contextlib.suppress(OSError):
            _Held(entry, create=False).remove()


class _Held:
    """An open folder whose lock this process holds.

    The contents are removed through the open folder: where others may write to its parent, its name may stand for
    another folder by then.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        self._path, self._owner = path, os.getpid()
        self._folder: int | None = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._lock: int | None = None
        try:
            if os.fstat(self._folder).st_uid != os.getuid():
                raise PermissionError(errno.EPERM, "a folder of another user", str(path))
            self.lock(create=create)
        except OSError:
            os.close(self._folder)
            raise

    def lock(self, *, create: bool) -> None:
        """Take the lock; with `create`, make its file."""
        if self._lock is not None:
            return
        flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        handle = os.open(_LOCK, flags, 0o600, dir_fd=self._folder)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(handle).st_nlink:
                raise FileNotFoundError(errno.ENOENT, "the folder is being removed", str(self._path))
        except OSError as error:
            if not (create and error.errno in _NO_LOCKS):
                os.close(handle)
                raise
        self._lock = handle

    def unlock(self) -> None:
        """Remove the file of the lock."""
        if self._lock is not None:
            os.unlink(_LOCK, dir_fd=self._folder)
            os.close(self._lock)
            self._lock = None

    def remove(self) -> None:
        """Remove the folder with its contents; in a fork of its owner, nothing."""
        if self._folder is None or os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                if stat.S_ISDIR(os.lstat(name, dir_fd=self._folder).st_mode):
                    shutil.rmtree(name, ignore_errors=True, dir_fd=self._folder)
                elif name != _LOCK:
                    os.unlink(name, dir_fd=self._folder)
            # The lock goes last: a later process removes what was written meanwhile.
            if not {*os.listdir(self._folder)} - {_LOCK}:
                self.unlock()
                os.rmdir(self._path)
        if self._lock is not None:
            os.close(self._lock)
        os.close(self._folder)
        self._folder = None
