"""The local copy of results at a URI."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.storage.mirror import Mirror
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.storage.remote_store import RemoteStore
from tests.conftest import PROJECT
from tests.storage.reading import latest_records
from tests.storage.remote import left_by_a_death, run


def test_new_files_are_uploaded_and_removed_files_of_tensorboard_are_deleted(uri: str) -> None:
    objects = ObjectStore(uri)
    objects.put_all(["tensorboard/old/events", "figures/old.svg", "table.md"], str.encode)
    mirror = Mirror(uri, ("table.md", "tensorboard"))
    assert sorted(path.name for path in mirror.folder.iterdir() if path.name[0] != ".") == ["table.md", "tensorboard"]
    for name in ("tensorboard/new/events", "figures/new.svg"):
        path = mirror.folder / name
        path.parent.mkdir(parents=True)
        path.write_text("new")
    at = {item.name: item.modified_ns for item in objects.list()}
    mirror.push()
    there = [item.name for item in objects.list(deep=True) if not item.is_folder]
    assert there == ["figures/new.svg", "figures/old.svg", "table.md", "tensorboard/new/events"]
    assert {item.name: item.modified_ns for item in objects.list()}["table.md"] == at["table.md"], "it is not changed"


def test_the_local_copy_is_deleted_with_its_last_reference(bucket: str) -> None:
    place = f"{bucket}/sweep"
    left_by_a_death(place, run(0))
    found = load(place)
    assert repr(found) == f"Results({place!r}, 1 runs: 1 ok)"
    part = found.of(found.records[:1])
    folder = found.folder
    del found
    assert (folder / "runs.jsonl").exists()
    assert part.where == place
    del part
    assert not folder.exists()


KILLED = """
import os, signal, sys
from dmls_ray.storage.remote_store import RemoteStore
from dmls_ray.util.errors import StoreError
from tests.storage.remote import run

def fail(*_):
    raise StoreError("it does not answer.")

whole, cut_off = (RemoteStore(uri, print) for uri in sys.argv[1:])
cut_off.mirror.objects.put_all = fail
whole.append(run(0))
cut_off.append(run(0))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_local_copy_of_a_killed_process_is_deleted_by_the_next_unless_it_has_runs_that_are_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    uri, other = (tmp_path / "whole").as_uri(), (tmp_path / "cut off").as_uri()
    words = [sys.executable, "-c", KILLED, uri, other]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    killed = subprocess.run(words, cwd=PROJECT, env=environment, timeout=60, check=False, stdout=subprocess.DEVNULL)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(temporary.iterdir())) == 2
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    store = RemoteStore(uri, print)
    (kept,) = set(temporary.iterdir()) - {store.folder}
    assert store.records == latest_records(kept) == [run(0)]
    assert not ObjectStore(other).list()
