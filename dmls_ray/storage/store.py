"""`Store`: a results folder that one process writes to."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dmls_ray.records.codec import SharedObjects
from dmls_ray.records.model import RunRecord
from dmls_ray.records.stale import SplitRecords, split_stale
from dmls_ray.storage.folder import read_sweep, write_sweep
from dmls_ray.storage.mirror import Mirror
from dmls_ray.storage.runs_file import (
    RUNS,
    add_record,
    append_lines,
    cut_torn_line,
    file_errors,
    records_by_id,
)
from dmls_ray.util.errors import StoreInUseError
from dmls_ray.util.files import open_regular

_LOCK = ".lock"

_LOCK_TIMEOUT_S = 0.2
"""Longer than `is_in_use` holds the lock."""


def is_in_use(folder: str | os.PathLike[str]) -> bool:
    """Whether a process writes to a results folder now."""
    try:
        with open_regular(Path(folder) / _LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody has written there, or nobody may look
        return False
    return False


class Store:
    """A results folder that this process, and no other at the same time, writes to.

    Use it as a context manager, or call `close`.

    Args:
        folder: the folder; it is made if it does not exist.
        where: the name to show for it, such as the URI that it is a copy of.

    Raises:
        StoreInUseError: another process writes to the folder.
        SchemaError: the folder was written by a version with another layout.
        StoreError: the folder or a line in it cannot be read.
    """

    mirror: Mirror | None = None
    """What copies the folder from and to a URI; None for results at a local path."""

    def __init__(self, folder: str | os.PathLike[str], *, where: str | None = None) -> None:
        self.folder = Path(folder)
        self.where = where or str(folder)
        """The name to show for it."""
        with file_errors(f"--out {folder} cannot be made a folder", "name another"):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(str(self.folder / _LOCK))
        with file_errors(f"--out {folder} cannot be written to through its .lock", "name another"):
            try:
                self._lock.acquire(timeout=_LOCK_TIMEOUT_S)
            except Timeout as error:
                raise StoreInUseError(
                    f"--out {folder} is in use by another process; wait for it, end it, or name another folder."
                ) from error
        try:
            self._shared = SharedObjects()
            self._records = records_by_id(self.folder, where, self._shared)
            cut_torn_line(self.folder / RUNS)
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def records(self) -> list[RunRecord]:
        """One record a run, without the stale ones."""
        return list(self.split.current)

    @property
    def all_records(self) -> list[RunRecord]:
        """One record a run."""
        return list(self._records.values())

    @property
    def split(self) -> SplitRecords:
        """The records, by whether the sessions so far make them stale."""
        return split_stale(self._records.values(), read_sweep(self.folder).get("sessions", []))

    def append(self, *records: RunRecord) -> bytes:
        """Add runs at once, which are on the disk by then; returns their lines.

        Raises:
            StoreError: they cannot be written: the disk is full, say.
        """
        lines = [record.to_json() + b"\n" for record in records]
        # Kept as if it was read, which needs little memory. A record that could not be read is not written.
        kept = [RunRecord.from_json(line, self._shared) for line in lines]
        content = b"".join(lines)
        append_lines(self.folder / RUNS, content)
        for record in kept:
            add_record(self._records, record)
        return content

    def add_sessions(self, *sessions: Mapping[str, Any]) -> None:
        """Add to sweep.json what calls ask for.

        Raises:
            StoreError: it cannot be written.
        """
        described = read_sweep(self.folder)
        described["sessions"] = [*described.get("sessions", []), *map(dict, sessions)]
        write_sweep(self.folder, described)

    def close(self) -> None:
        """Let other processes write."""
        self._lock.release()
