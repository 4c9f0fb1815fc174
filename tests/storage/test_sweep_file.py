from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.storage.folder import Store
from dmls_ray.storage.sweep_file import SWEEP_SCHEMA, command_line, command_words, read_sweep, trial_ids

NEW = {"command": ["python", "a.py", "--out", "my results"], "trials": ["a", "b"]}
OLD = {"command": "python a.py --out 'my results'", "trials": "a b"}


@pytest.mark.parametrize("session", [NEW, OLD])
def test_command_and_trials_are_read_from_lists_and_from_the_texts_of_older_files(
    session: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps({"schema": 1, "sessions": [session]}))
    (read,) = read_sweep(tmp_path)["sessions"]
    assert command_line(read) == "python a.py --out 'my results'"
    assert "--out" in command_words(read)
    assert trial_ids(read) == ["a", "b"]


@pytest.mark.parametrize("session", [{}, {"command": [], "trials": []}, {"command": "", "trials": ""}])
def test_a_session_may_lack_a_command_and_trials(session: dict[str, Any]) -> None:
    assert (command_line(session), command_words(session), trial_ids(session)) == ("", [], [])


def test_a_new_session_is_added_to_an_older_file_which_then_has_the_present_schema(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps({"schema": 1, "sessions": [OLD]}))
    with Store(tmp_path) as store:
        store.add_session(NEW)
    assert read_sweep(tmp_path) == {"schema": SWEEP_SCHEMA, "sessions": [OLD, NEW]}


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
