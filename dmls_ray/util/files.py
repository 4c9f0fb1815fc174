"""Files: atomic writing, safe opening, locks, the folder of caches, and temporary folders.

A `TemporaryFolder` is removed with its owner's work, or, where the owner was killed, by a later one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import sys
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from filelock import FileLock  # loaded where it is needed: it takes as long as the rest of a supervisor


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


def read_end(path: str | os.PathLike[str], most: int) -> str:
    """The end of a text file, of so many bytes at most; errors are those of `open_regular`."""
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most).decode(errors="replace")


def try_lock(file: IO[Any]) -> bool:
    """Lock a file alone until it is closed, if no other process holds a lock on it; returns whether it is locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
        name: its name, by which other processes know it; by default, a random one.
    """

    def __init__(self, kind: str, parent: Path | None = None, *, name: str | None = None) -> None:
        from filelock import FileLock, Timeout

        parent = Path(tempfile.gettempdir()) if parent is None else parent
        remove_abandoned(parent)
        while True:
            if name is None:
                self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=parent))
            else:
                self.path = parent / name
                self.path.mkdir(0o700)
            self._lock = FileLock(self.path / _LOCK, mode=0o600, thread_local=False)
            # Another process may see the file before its lock, and remove the folder.
            with suppress(Timeout):
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
    from filelock import FileLock

    for lock in parent.glob(f"{PREFIX}*/{_LOCK}"):
        folder = lock.parent
        # Most have an owner that holds the lock; others are of other users.
        with suppress(OSError):
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
    """A folder for temporary files: the usual one, or /tmp where its path has no room for sockets, whose paths the
    system limits to about a hundred bytes.

    Args:
        usual: the folder to use where its path is short enough.
        below: the path that a socket has below the folder.
    """
    has_room = len(os.fsencode(usual)) + len(os.fsencode(below)) <= _LONGEST
    return usual if has_room else Path("/tmp")
