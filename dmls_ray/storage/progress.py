"""`.progress.json`: how far the runs of a sweep are, for other processes. It is there while they go on."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from dmls_ray.storage.store import is_in_use
from dmls_ray.util.files import atomic_write_text, open_regular

_PROGRESS = ".progress.json"


class SweepProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the runs of one call are."""

    done: int
    """Runs that have ended."""
    total: int
    """Runs that the call makes, as far as it is known."""
    run_id: str
    """The run that was last heard of; empty before the first one."""
    seen_at: float
    """Unix time of its last step or event."""


class ProgressFile:
    """The file of the sweep that this process runs.

    Args:
        folder: its results folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _PROGRESS
        self._seen_at = 0.0

    def write(self, done: int, total: int, run_id: str, seconds_ago: float = 0.0) -> None:
        """Say how far the runs are.

        Where the file cannot be written, the sweep goes on, and the time in the old one says how old it is.

        Args:
            done: runs that have ended.
            total: runs to come, with those.
            run_id: a run that has got on; empty before the first one.
            seconds_ago: since it has.
        """
        seen_at = time.time() - seconds_ago
        # Of several runs under way, another one may have got on since.
        if seen_at <= self._seen_at:
            return
        self._seen_at = seen_at
        progress = SweepProgress(done=done, total=total, run_id=run_id, seen_at=seen_at)
        with contextlib.suppress(OSError):
            atomic_write_text(self._path, msgspec.json.encode(progress).decode())

    def remove(self) -> None:
        """Remove the file: no more runs follow."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def read_progress(folder: str | os.PathLike[str]) -> SweepProgress | None:
    """How far the runs of a sweep are; None if no runs go on in this folder."""
    try:
        with open_regular(Path(folder) / _PROGRESS) as file:
            progress = msgspec.json.decode(file.read(), type=SweepProgress)
    except (OSError, ValueError):
        return None
    # A sweep that was stopped or killed may have left its file.
    return progress if is_in_use(folder) else None


def folders_with_progress(location: str) -> list[Path]:
    """The results folders at or below a local path that have such a file."""
    return sorted(Path(folder) for folder, _, names in os.walk(location) if _PROGRESS in names)
