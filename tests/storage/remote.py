"""Runs in a folder and at a URI, and what tests see of them."""

from __future__ import annotations

from pathlib import Path

from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.storage.folder import read_folder
from dmls_ray.storage.mirror import Mirror
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.storage.remote_store import RemoteStore
from tests.records.test_model import record


def latest_records(folder: Path) -> list[RunRecord]:
    """One record a run, the last of each, of the current version of the user's code and data."""
    return list(read_folder(folder).current)


def run(number: int, outcome: Outcome = Outcome.OK) -> RunRecord:
    return record(run_id=f"a-{number}", repeat=number, outcome=outcome)


def records(uri: str) -> list[RunRecord]:
    """The runs there; file:// stands for a distributed file system."""
    mirror = Mirror(uri)  # its folder is deleted with it
    return latest_records(mirror.folder)


def numbers(uri: str) -> list[int]:
    """The repeats of the runs there, with repetitions."""
    return sorted(item.repeat for item in records(uri))


def objects_of(uri: str) -> list[str]:
    """The names of the objects with runs."""
    return ObjectStore(uri).list("runs")


def path_of(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def left_by_a_death(uri: str, *runs: RunRecord) -> RemoteStore:
    """A store with runs of a process that died: it is never closed."""
    store = RemoteStore(uri, note=print)
    for item in runs:
        store.append(item)
    return store
