"""The folder of a run's files, `runs/<run_id>`: files of another version of the user's code or data are moved aside."""

from __future__ import annotations

from pathlib import Path

from dmls_ray.util.atomic import atomic_write_text

VERSION = ".dmls_ray_version"
"""File with the digest of the code and the data that the other files are of."""


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
        atomic_write_text(file, digest)
