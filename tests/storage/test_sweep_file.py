from __future__ import annotations

import os
from pathlib import Path

import pytest

from dmls_ray.storage.folder import Store

NEW = {"command": ["python", "a.py", "--out", "my results"], "trials": ["a", "b"]}


def test_a_session_is_on_the_disk_when_it_has_been_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync, replace = os.fsync, os.replace

    def note_sync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    def note_replace(source: Path, target: Path) -> None:
        assert synced == [str(source)], "the content comes first"
        replace(source, target)

    with Store(tmp_path) as store:
        monkeypatch.setattr(os, "fsync", note_sync)
        monkeypatch.setattr(os, "replace", note_replace)
        store.add_session(NEW)
    assert synced[1:] == [str(tmp_path)], "then the name"
