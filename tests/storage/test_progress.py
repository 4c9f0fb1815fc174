from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dmls_ray.storage import progress
from dmls_ray.storage.progress import ProgressFile, folders_with_progress, read_progress
from dmls_ray.storage.store import Store, is_in_use


def test_the_progress_of_a_sweep_is_there_while_its_runs_go_on(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    with Store(tmp_path / "sweep") as store:
        assert folders_with_progress(str(tmp_path)) == []
        file = ProgressFile(store.folder)
        file.write(1, 4, "a-1", seconds_ago=60)
        assert folders_with_progress(str(tmp_path)) == [store.folder]
        found = read_progress(store.folder)
        assert found is not None
        assert (found.done, found.total, found.run_id) == (1, 4, "a-1")
        assert time.time() - found.seen_at == pytest.approx(60, abs=10)
        file.remove()
        assert read_progress(store.folder) is None
        file.remove()


def test_of_two_runs_under_way_the_last_one_that_has_got_on_counts(tmp_path: Path) -> None:
    with Store(tmp_path):
        file = ProgressFile(tmp_path)
        file.write(0, 4, "a-1", seconds_ago=5)
        file.write(0, 4, "hangs", seconds_ago=50)
        found = read_progress(tmp_path)
        assert found is not None
        assert found.run_id == "a-1"


def test_what_a_killed_sweep_has_left_is_no_progress(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from dmls_ray.storage.progress import ProgressFile, read_progress
from dmls_ray.storage.store import Store
store = Store({str(tmp_path)!r})
ProgressFile(store.folder).write(1, 4, "a-1")
assert read_progress(store.folder)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert folders_with_progress(str(tmp_path)) == [tmp_path]
    assert read_progress(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", '{"done": "1"}', "[]"])
def test_a_file_that_says_something_else_is_no_progress(tmp_path: Path, content: str) -> None:
    with Store(tmp_path):
        (tmp_path / progress._PROGRESS).write_text(content)
        assert read_progress(tmp_path) is None


def test_a_folder_that_is_looked_at_all_the_time_can_be_opened(tmp_path: Path) -> None:
    Store(tmp_path).close()
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            is_in_use(tmp_path)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(50):
            with Store(tmp_path):
                assert is_in_use(tmp_path)
            assert not is_in_use(tmp_path)
    finally:
        ended.set()
        thread.join()


def test_progress_that_cannot_be_written_does_not_end_a_sweep(tmp_path: Path) -> None:
    ProgressFile(tmp_path / "missing").write(1, 4, "a-1")
    assert not (tmp_path / "missing").exists()
