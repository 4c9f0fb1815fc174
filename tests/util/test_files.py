"""Locks between processes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from filelock import FileLock

from dmls_ray.util import files
from dmls_ray.util.files import lock_with_notice


def test_a_lock_that_another_holds_for_long_is_waited_for_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "NOTICE_AFTER_S", 0.05)
    path, printed = str(tmp_path / "data.lock"), threading.Event()
    other = FileLock(path, thread_local=False)
    other.acquire()

    def print_and_release(*words: str, **options: object) -> None:
        print(*words)
        other.release()
        printed.set()

    monkeypatch.setattr(files, "print", print_and_release, raising=False)
    with lock_with_notice(path, "decodes the images of dataset=digits"):
        assert printed.is_set()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("Another process decodes the images of dataset=digits, and this one waits for it")
    assert path in line
