"""Reading of a results folder, for tests of what is written there."""

from __future__ import annotations

from pathlib import Path

from dmls_ray.records.model import RunRecord
from dmls_ray.storage.folder import read_folder


def latest_records(folder: Path) -> list[RunRecord]:
    """One record a run, the last of each, of the current version of the user's code and data."""
    return list(read_folder(folder).current)
