"""Where imports search the user's folders, in the driver and in the ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from dmls_ray.util.importing import import_function
from dmls_ray.util.module_path import STANDARD_LIBRARY, leave_out_folder, module_path, search_working_folder
from tests.conftest import PROJECT

STANDARD, INSTALLED = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, on a search path as that of a script in another folder."""
    for name in ("scripts", "editable", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "scripts"), STANDARD, INSTALLED, str(tmp_path / "editable")])
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_the_working_folder_comes_before_installed_packages_and_after_modules_of_python(folder: Path) -> None:
    search_working_folder()
    search_working_folder()
    places = {entry: place for place, entry in enumerate(sys.path)}
    assert places[STANDARD] < places[str(folder)] < places[INSTALLED]
    assert sys.path.count(str(folder)) == 1


def test_a_module_of_the_user_hides_an_installed_one_of_its_name(folder: Path) -> None:
    (folder / "xdist.py").write_text("def build(): return 'mine'\n")
    hidden = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "xdist"}
    try:
        assert import_function("xdist:build", flag="model")() == "mine"
    finally:
        sys.modules.pop("xdist", None)
        sys.modules.update(hidden)


def test_another_process_searches_the_users_folders_in_the_same_order(folder: Path) -> None:
    search_working_folder()
    scripts, editable = str(folder.parent / "scripts"), str(folder.parent / "editable")
    assert module_path() == (scripts, STANDARD_LIBRARY, str(folder), editable)
    script = (
        "import json, sys\nfrom dmls_ray.util.module_path import module_path, search_module_path\n"
        f"search_module_path({module_path()!r})\nprint(json.dumps(module_path()))"
    )
    # As in a worker of Ray, the working folder is first there.
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(found.stdout) == [scripts, str(PROJECT), STANDARD_LIBRARY, str(folder), editable]


def test_a_folder_that_is_left_out_is_searched_under_none_of_its_names(folder: Path) -> None:
    (folder / "sweeps").mkdir()
    (folder / "link").symlink_to(folder / "sweeps")
    sys.path[:0] = [str(folder / "link"), str(folder / "sweeps")]
    leave_out_folder(str(folder / "sweeps"))
    assert sys.path[0] == str(folder.parent / "scripts")
