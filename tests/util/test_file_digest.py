from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.util.file_digest import digest_of_files

LONG_AGO = 1_600_000_000


def write(path: Path, text: str, *, mtime: int = LONG_AGO) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (mtime, mtime))


def test_a_copy_of_a_folder_has_its_digest_and_a_changed_or_renamed_file_has_another(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    write(original / "a" / "1.txt", "one")
    write(original / "2.txt", "two")
    digest = digest_of_files(original)
    assert digest_of_files(f"{original}/") == digest
    shutil.copytree(original, copy, copy_function=shutil.copyfile)
    assert digest_of_files(copy) == digest

    write(copy / "2.txt", "TWO")
    assert digest_of_files(copy) != digest
    write(copy / "2.txt", "two", mtime=LONG_AGO + 1)
    assert digest_of_files(copy) == digest
    (copy / "2.txt").rename(copy / "3.txt")
    assert digest_of_files(copy) != digest


def test_a_file_that_was_written_just_now_is_read_again(tmp_path: Path) -> None:
    # Its time may stay the same when it is written once more.
    write(tmp_path / "a.txt", "one")
    os.utime(tmp_path / "a.txt")
    time = (tmp_path / "a.txt").stat().st_mtime_ns
    digest = digest_of_files(tmp_path)
    (tmp_path / "a.txt").write_text("two")
    os.utime(tmp_path / "a.txt", ns=(time, time))
    assert digest_of_files(tmp_path) != digest


def test_links_are_followed_once_and_hidden_files_and_pipes_are_left_out(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    write(folder / "a.txt", "one")
    digest = digest_of_files(folder)
    write(folder / ".cache" / "b.txt", "hidden")
    os.mkfifo(folder / "pipe")
    (folder / "back").symlink_to(folder)
    (folder / "nowhere").symlink_to(folder / "missing")
    assert digest_of_files(folder) == digest

    write(elsewhere / "b.txt", "two")
    (folder / "linked").symlink_to(elsewhere)
    linked = digest_of_files(folder)
    assert linked != digest
    write(elsewhere / "b.txt", "TWO", mtime=LONG_AGO + 1)
    assert digest_of_files(folder) != linked


def test_two_links_to_one_folder_are_followed_in_the_same_order_on_each_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "pool" / "a.txt", "one")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "linked").symlink_to(tmp_path / "pool")
    digest = digest_of_files(tmp_path)
    walk = os.walk

    def backwards(*arguments: Any, **options: Any) -> Iterator[tuple[str, list[str], list[str]]]:
        for folder, folders, names in walk(*arguments, **options):
            folders.reverse()
            yield folder, folders, names

    monkeypatch.setattr(os, "walk", backwards)
    assert digest_of_files(tmp_path) == digest


def test_a_single_file_has_a_digest(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "one")
    digest = digest_of_files(tmp_path / "a.txt")
    write(tmp_path / "a.txt", "two", mtime=LONG_AGO + 1)
    assert digest_of_files(tmp_path / "a.txt") != digest
