"""Temporary folders are gone with their owners, and those of owners that were killed with the next folder."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmls_ray.util.files import TemporaryFolder, remove_abandoned
from tests.conftest import PROJECT

OWNER = """
import os, pathlib, signal, sys
from dmls_ray.util.files import TemporaryFolder
folder = TemporaryFolder("run")
(folder.path / "job.pickle").write_text("secret")
for kept in sys.argv[1:]:
    folder.keep(kept == "kept")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@contextlib.contextmanager
def folder_of_another(*kept: str) -> Iterator[Path]:
    """The folder of a process that is killed in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, *kept], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield Path(process.stdout.readline().strip())
        process.kill()


def test_a_fork_that_ends_leaves_the_folder_of_its_parent() -> None:
    forks = (
        "import os, sys\n"
        "from dmls_ray.util.files import TemporaryFolder\n"
        "folder = TemporaryFolder('run')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "print(folder.path.exists())\n"
    )
    done = subprocess.run([sys.executable, "-c", forks], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_folder_is_removed_with_its_contents_and_no_other_user_can_enter_it(temporary: Path) -> None:
    with TemporaryFolder("run") as folder:
        assert folder.parent == temporary
        assert folder.name.startswith("dmls_ray-run-")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "sub").mkdir()
    assert not list(temporary.iterdir())


def test_the_folder_of_a_killed_process_is_removed_when_the_next_is_made() -> None:
    with folder_of_another() as abandoned:
        pass
    assert (abandoned / "job.pickle").exists()
    with TemporaryFolder("sweep") as folder:
        assert not abandoned.exists()
        assert folder.exists()


def test_a_folder_that_a_process_still_writes_into_is_removed_when_the_next_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, rmtree = TemporaryFolder("ray"), shutil.rmtree

    def written_into(path: Path, **options: bool) -> None:
        rmtree(path, **options)
        path.mkdir()
        (path / "raylet.log").touch()

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", written_into)
        folder.remove()
    assert folder.path.exists()
    TemporaryFolder("ray").remove()
    assert not folder.path.exists()


def test_the_folder_of_a_living_process_stays() -> None:
    with folder_of_another() as used, TemporaryFolder("run") as first, TemporaryFolder("run") as second:
        remove_abandoned(first.parent)
        assert first.exists()
        assert second.exists()
        assert (used / "job.pickle").read_text() == "secret"


@pytest.mark.parametrize("kept", [("kept",), ("kept", "no more")])
def test_a_folder_that_is_to_be_kept_outlives_its_killed_owner(kept: tuple[str, ...]) -> None:
    with folder_of_another(*kept) as folder:
        pass
    remove_abandoned(folder.parent)
    assert folder.exists() == (len(kept) == 1)


def test_what_only_has_such_a_name_stays(temporary: Path) -> None:
    kept = temporary / "kept"
    kept.mkdir()
    (kept / ".in_use").touch()
    (temporary / "dmls_ray-link").symlink_to(kept)
    (temporary / "dmls_ray-file").touch()
    (temporary / "dmls_ray-no-lock").mkdir()
    remove_abandoned(temporary)
    assert len(list(temporary.iterdir())) == 4
    assert (kept / ".in_use").exists()
