"""The folder of a run's files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

CHECKPOINT_FILES = "*.rank-*.pt"
"""The files in `checkpoints/` that ranks write; a user-defined function may have others there."""


def run_folder(results: Path, run_id: str) -> Path:
    """Return the folder of a run's files in a local results folder."""
    return results.resolve() / "runs" / run_id


def remove_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a run whose record is kept: until then, it may have to be resumed.

    Args:
        folder: the folder of the run.
    """
    checkpoints = folder / "checkpoints"
    if folder.is_symlink() or checkpoints.is_symlink():
        return  # it may lead anywhere
    with suppress(OSError):  # those that stay take space, and do no other harm
        for path in checkpoints.glob(CHECKPOINT_FILES):
            path.unlink()
        checkpoints.rmdir()
