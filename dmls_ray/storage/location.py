"""Results at a local path or at a URI: open, read, find, and name a new location."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from dmls_ray.records.model import RunRecord
from dmls_ray.storage.folder import SWEEP
from dmls_ray.storage.mirror import RUNS_DIR, SESSIONS_DIR, Mirror
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.storage.remote_store import Note, RemoteStore
from dmls_ray.storage.runs_file import RUNS, file_errors, records_by_id
from dmls_ray.storage.store import Store
from dmls_ray.util.uri import below, is_uri, numbered


def open_store(location: str | os.PathLike[str], note: Note) -> Store:
    """Open the results at a local path or a URI for writing.

    Args:
        location: the results folder.
        note: receives what the user should know.

    Raises:
        StoreError: as `Store`, or the URI cannot be reached.
    """
    return RemoteStore(str(location), note) if is_uri(location) else Store(location)


def records_at(location: str | os.PathLike[str]) -> list[RunRecord]:
    """Return one record of each run at a local path or a URI; none where there is no sweep yet.

    Raises:
        StoreError: the results cannot be read.
    """
    folder, _mirror = local_copy(location)
    return list(records_by_id(folder, str(location)).values())


def local_copy(location: str | os.PathLike[str]) -> tuple[Path, Mirror | None]:
    """Return the folder of results at a local path or a URI, and the owner of that folder if it is a copy.

    Raises:
        StoreError: the URI cannot be reached.
    """
    if not is_uri(location):
        return Path(location), None
    mirror = Mirror(str(location))
    return mirror.folder, mirror


def first_free_location(location: str | os.PathLike[str]) -> str | Path:
    """Return the first of LOCATION, LOCATION-2, LOCATION-3, ... that contains no sweep: a URI or a path.

    Raises:
        StoreError: a local path cannot be a folder, or a URI cannot be reached or numbered.
    """
    number, candidate = 1, str(location) if is_uri(location) else Path(location)
    while _contains_sweep(candidate):
        number += 1
        candidate = numbered(location, number)
    return candidate


def find_sweeps(location: str) -> list[str] | list[Path]:
    """Return the results folders at or below a local path, or the URIs at or below a URI.

    Raises:
        StoreError: the URI cannot be read.
    """
    if not is_uri(location):
        # Links to folders are not followed, and folders that cannot be read are left out.
        return sorted(Path(folder) for folder, _, names in os.walk(location) if RUNS in names)

    uris = set()
    for name in ObjectStore(location).list(deep=True):
        folder = PurePosixPath(name).parent
        if folder.name == RUNS_DIR and name.endswith(".jsonl"):
            uris.add(location if folder.parent == PurePosixPath() else below(location, str(folder.parent)))
    return sorted(uris)


def _contains_sweep(location: str | Path) -> bool:
    if isinstance(location, str):
        objects = ObjectStore(location)
        return bool(objects.list(SESSIONS_DIR)) or bool(objects.list(RUNS_DIR))
    with file_errors(f"--out {location} cannot be a folder", "name another"):
        return (location / RUNS).exists() or (location / SWEEP).exists()
