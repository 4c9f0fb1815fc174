"""A folder that is made equal to another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dmls_ray.util import mirror
from dmls_ray.util.mirror import make_equal, picture_of


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A folder with a program, a link, and a folder with a file and an empty folder in it."""
    folder = tmp_path / "original"
    (folder / "inner" / "empty").mkdir(parents=True)
    (folder / "inner" / "file.txt").write_text("text")
    (folder / "program").write_text("#!/bin/sh")
    (folder / "program").chmod(0o700)
    os.utime(folder / "program", ns=(1, 123456789))
    (folder / "link").symlink_to("inner/file.txt")
    return folder


def seen(folder: Path) -> dict[str, object]:
    return {path: (entry[1:], folder.joinpath(path).is_dir()) for path, entry in picture_of(folder).items()}


def test_a_copy_has_contents_times_modes_and_links(original: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    make_equal(copy, picture_of(original))
    assert seen(copy) == seen(original)
    assert (copy / "program").stat().st_mtime_ns == 123456789
    assert os.access(copy / "program", os.X_OK)
    assert (copy / "link").read_text() == "text"


def test_whatever_was_done_to_a_copy_is_undone(original: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    make_equal(copy, picture_of(original))
    before = seen(copy)
    (copy / "inner" / "file.txt").unlink()
    (copy / "inner" / "file.txt").mkdir()
    (copy / "inner" / "file.txt" / "below").touch()
    (copy / "inner" / "empty").rmdir()
    (copy / "inner" / "empty").symlink_to(original)
    (copy / "program").write_text("#!/bin/zs")  # of the same size
    (copy / "link").unlink()
    (copy / "link").write_text("no link")
    (copy / "new").mkdir()
    (copy / "new" / "file").touch()
    os.mkfifo(copy / "pipe")
    make_equal(copy, picture_of(original))
    assert seen(copy) == before
    assert (copy / "program").read_text() == "#!/bin/sh"
    assert (original / "inner" / "file.txt").read_text() == "text"


def test_unchanged_files_are_left_alone_and_so_are_names_that_are_to_stay(original: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    make_equal(copy, picture_of(original))
    inode = (copy / "program").stat().st_ino
    for folder in (copy, copy / "unwanted"):
        (folder / "kept").mkdir(parents=True)
        (folder / "kept" / "file").touch()
    make_equal(copy, picture_of(original), left_alone=["kept"])
    assert (copy / "program").stat().st_ino == inode
    assert (copy / "kept" / "file").exists()
    assert not (copy / "unwanted").exists()


def test_a_file_that_has_gone_meanwhile_is_not_copied(original: Path, tmp_path: Path) -> None:
    picture = picture_of(original)
    (original / "program").unlink()
    make_equal(tmp_path / "copy", picture)
    assert not (tmp_path / "copy" / "program").exists()


def test_without_the_file_systems_help_files_are_copied(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_clone", lambda source, target: False)
    make_equal(tmp_path / "copy", picture_of(original))
    assert (tmp_path / "copy" / "program").read_text() == "#!/bin/sh"
    assert not mirror.can_clone(str(original / "program"), tmp_path)


def test_only_the_process_that_asks_for_it_cannot_write(original: Path) -> None:
    code = """
import sys
from dmls_ray.util.mirror import make_read_only
if make_read_only(sys.argv[1:]):
    try:
        open(sys.argv[1] + "/new", "w")
    except OSError as error:
        print(error.strerror)
"""
    said = subprocess.run([sys.executable, "-c", code, str(original)], capture_output=True, text=True, check=True)
    if not said.stdout:
        pytest.skip("the system lets this user mount nothing")
    assert said.stdout.strip() == "Read-only file system"
    (original / "new").touch()


def test_folders_that_were_closed_are_opened(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "data" / "inner").mkdir(parents=True)
    (source / "data" / "inner" / "a.txt").write_text("a")
    make_equal(copy, picture_of(source))
    (copy / "new").mkdir()
    (copy / "new" / "b.txt").touch()
    for path in ("data/inner", "data", "new"):
        (copy / path).chmod(0)
    make_equal(copy, picture_of(source))
    assert sorted(path.name for path in copy.rglob("*")) == ["a.txt", "data", "inner"]
    assert (copy / "data" / "inner" / "a.txt").read_text() == "a"
    assert (copy / "data").stat().st_mode & 0o777 == 0o755
