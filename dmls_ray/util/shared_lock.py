"""`lock_with_notice`: a lock between processes whose wait is announced."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from filelock import FileLock, Timeout

NOTICE_AFTER_S = 10.0
"""How long the lock is waited for in silence."""


@contextlib.contextmanager
def lock_with_notice(path: str, work: str) -> Iterator[None]:
    """Hold a lock, and print one line if another process holds it for long; it may be stopped.

    Args:
        path: the file of the lock.
        work: what the other process does.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=NOTICE_AFTER_S)
    except Timeout:
        print(
            f"Another process {work}, and this one waits for it; if none does, end the process that holds {path} "
            "(fuser names it).",
            file=sys.stderr,
            flush=True,
        )
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
