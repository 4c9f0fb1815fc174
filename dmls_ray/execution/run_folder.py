"""The folder of a run's files, `runs/<run_id>`: files of another version of the user's code or data are moved aside."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from dmls_ray.util.atomic import atomic_write_text

VERSION = ".dmls_ray_version"
"""File with the digest of the code and the data that the other files are of."""


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


def prepare_run_folder(folder: Path, digest: str) -> None:
    """Prepare the folder for a run of this version, so that the run takes up no checkpoint of another.

    Files of another version stay in `<run_id>-<its digest>`.

    Args:
        folder: the folder of the run.
        digest: `Identity.digest` of the run; empty without user-defined code and data.
    """
    file = folder / VERSION
    before = file.read_text() if file.is_file() else ""
    if before == digest:
        return
    if folder.is_dir():
        name, number = f"{folder.name}-{before[:8] or 'earlier'}", 1
        while (aside := folder.with_name(name if number == 1 else f"{name}-{number}")).exists():
            number += 1
        folder.rename(aside)
    if digest:
        folder.mkdir(parents=True)
        atomic_write_text(file, digest, durable=True)
