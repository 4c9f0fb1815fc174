from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from dmls_ray.util.digests import AND_IMPORTS, digest_of_files, file_of_program, source_digests


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's files: a module, what it imports, and a package."""
    files = {
        "digested.py": "import digested_helper\nfrom digested_package import layers\nimport torch\n",
        "digested_helper.py": "SIZE = 3\n",
        "digested_package/__init__.py": "",
        "digested_package/layers.py": "def build():\n    from . import blocks\n    return blocks\n",
        "digested_package/blocks.py": "from .deep.inner import x\n",
        "digested_package/deep/inner.py": "x = 1\n",
        "digested_package/unused.py": "",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def files(*modules: str) -> list[str]:
    return [name for name in source_digests(modules) if not name.endswith(AND_IMPORTS)]


def test_the_digests_are_of_a_module_and_of_all_that_it_imports_from_the_users_files(tree: Path) -> None:
    assert files("digested") == [
        "digested.py", "digested_helper.py", "digested_package/__init__.py", "digested_package/blocks.py",
        "digested_package/deep/inner.py", "digested_package/layers.py",
    ]  # fmt: skip
    assert "digested_helper" not in sys.modules, "nothing is imported"


def test_a_program_that_is_a_module_has_its_package_and_its_main_block_in_its_digests(tree: Path) -> None:
    program = tree / "digested_package" / "train.py"
    program.write_text("from .deep.inner import x\nif __name__ == '__main__':\n    import digested_helper\n")
    names = ["digested_helper.py", "digested_package/__init__.py", "digested_package/deep/inner.py"]
    assert files("-m digested_package.train") == [*names, "digested_package/train.py"]
    before = source_digests(["-m digested_package.train"])
    program.write_text(program.read_text() + "    x += 1\n")
    assert source_digests(["-m digested_package.train"]) != before
    assert file_of_program("-m digested_package.train") == program
    assert file_of_program("-m digested_package") is None
    (tree / "digested_package" / "__main__.py").write_text("import digested_helper")
    assert file_of_program("-m digested_package") == tree / "digested_package" / "__main__.py"
    assert files("-m digested_package") == [*names[:2], "digested_package/__main__.py"]
    assert "digested_package" not in sys.modules, "nothing is imported"


def test_an_edit_changes_the_digest_of_its_file_alone(tree: Path) -> None:
    before = source_digests(["digested"])
    (tree / "digested_package" / "deep" / "inner.py").write_text("x = 2\n")
    after = source_digests(["digested"])
    assert {name for name in before if before[name] != after[name]} == {
        "digested_package/deep/inner.py", "digested.py and its imports",
    }  # fmt: skip
    (tree / "digested_package" / "deep" / "inner.py").write_text("x = 1\n")
    assert source_digests(["digested"]) == before


def test_comments_docstrings_formatting_and_the_main_block_do_not_count(tree: Path) -> None:
    (tree / "digested.py").write_text('def train(config, rank, emit):\n    return {"x": 1}\n')
    before = source_digests(["digested"])
    (tree / "digested.py").write_text(
        '"""My model."""\n# A comment.\ndef train(config, rank,\n          emit):\n    """Trains."""\n'
        "    return {'x': 1}\n\n"
        "if __name__ == '__main__':\n    import digested_helper\n    sweep(train, {'lr': [1, 2]})\n"
    )
    assert source_digests(["digested"]) == before
    (tree / "digested.py").write_text('def train(config, rank, emit):\n    return {"x": True}\n')
    assert source_digests(["digested"]) != before, "1 and True are equal, and not the same"


def test_the_package_itself_pythons_modules_and_installed_packages_have_no_digest(tree: Path) -> None:
    (tree / "digested.py").write_text("import os, json, numpy\nfrom dmls_ray.training.rank import RankInfo\n")
    assert files("digested", "dmls_ray.workloads.classification.train") == ["digested.py"]


def test_a_model_of_an_installed_package_counts_with_its_package_alone(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in {"installed/__init__.py": "import other", "installed/net.py": "", "other.py": ""}.items():
        (tree / "site-packages" / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / "site-packages" / name).write_text(content)
    monkeypatch.syspath_prepend(tree / "site-packages")
    assert files("installed.net") == ["installed/__init__.py", "installed/net.py"]
    (tree / "digested.py").write_text("import installed\n")
    assert files("digested") == ["digested.py"]


def test_packages_in_a_folder_of_any_name_have_no_digest_and_the_users_modules_beside_them_do(tree: Path) -> None:
    sources = {
        "tool/__init__.py": "from tool import part", "tool/part.py": "import space.installed", "space/installed.py": "",
        "space/mine.py": "", "mine.py": "import space.mine, tool",
    }  # fmt: skip
    for name, content in sources.items():
        (tree / "packages" / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / "packages" / name).write_text(content)
    (tree / "packages" / "tool-1.0.dist-info").mkdir()
    record = "tool/__init__.py,,\ntool/part.py,,\nspace/installed.py,,\n"
    (tree / "packages" / "tool-1.0.dist-info" / "RECORD").write_text(record)
    sys.path.append(str(tree / "packages"))
    (tree / "digested.py").write_text("import tool, mine, space.installed\n")
    assert files("digested") == ["digested.py", "mine.py", "space/mine.py"]
    assert files("tool.part") == ["tool/__init__.py", "tool/part.py"], "what is named counts with its package"


def test_a_module_that_is_not_there_has_no_digest_and_one_that_is_no_python_has_that_of_its_bytes(tree: Path) -> None:
    assert source_digests(["nowhere", "nowhere.inside"]) == {}
    assert files("digested_helper.inside") == ["digested_helper.py"]
    (tree / "digested_helper.py").write_text("this is no Python")
    first = source_digests(["digested_helper"])
    (tree / "digested_helper.py").write_text("this is no  Python")
    assert len(first) == 2
    assert source_digests(["digested_helper"]) != first
    (tree / "digested_helper.py").write_text("x = " + " + ".join(["1"] * 20_000))
    assert files("digested_helper") == ["digested_helper.py"]


def test_two_folders_of_one_tree_have_the_same_digests(tree: Path, tmp_path: Path) -> None:
    here = source_digests(["digested_package.layers"])
    (tree / "copy").mkdir()
    (tree / "digested_package").rename(tree / "copy" / "digested_package")
    sys.path.insert(0, str(tree / "copy"))
    assert source_digests(["digested_package.layers"]) == here


def test_a_module_that_is_imported_by_a_constant_name_counts(tree: Path) -> None:
    (tree / "digested.py").write_text(
        "import importlib\nhelper = importlib.import_module('digested_helper')\n__import__('digested_package')\n"
    )
    assert files("digested") == ["digested.py", "digested_helper.py", "digested_package/__init__.py"]


def test_a_file_that_appears_changes_the_entry_of_the_module_that_tries_to_import_it(tree: Path) -> None:
    (tree / "digested.py").write_text("try:\n    import digested_extra\nexcept ImportError:\n    pass\n")
    before = source_digests(["digested"])
    (tree / "digested_extra.py").write_text("")
    after = source_digests(["digested"])
    assert before["digested.py"] == after["digested.py"]
    assert before["digested.py and its imports"] != after["digested.py and its imports"]


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


def test_a_single_file_has_a_digest(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "one")
    digest = digest_of_files(tmp_path / "a.txt")
    write(tmp_path / "a.txt", "two", mtime=LONG_AGO + 1)
    assert digest_of_files(tmp_path / "a.txt") != digest
