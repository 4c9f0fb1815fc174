from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from dmls_ray.util.errors import ConfigError, UnknownNameError, UserCodeError
from dmls_ray.util.importing import (
    check_libraries,
    import_function,
    is_installed,
    is_reference,
    leave_out_folder,
    module_path,
    search_working_folder,
)
from tests.conftest import PROJECT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_function_is_found_in_the_folder_of_the_call(folder: Path) -> None:
    (folder / "mine_found.py").write_text("def build(): return 41 + 1\n")
    assert import_function("mine_found:build", flag="model")() == 42


@pytest.mark.parametrize("name", ["mine_absent", "json.inner"])
def test_an_absent_module_is_reported(name: str, folder: Path) -> None:
    with pytest.raises(UnknownNameError, match=f"model={name}:build: no module named '{name}'"):
        import_function(f"{name}:build", flag="model")


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import not_installed_here\n", "ModuleNotFoundError: No module named 'not_installed_here'"),
        ("x = 1 / 0\n", r"ZeroDivisionError: division by zero \(mine_broken.*.py, line 1\)"),
        ("def broken(:\n", r"SyntaxError: .*[^)] \(mine_broken_\d+.py, line 1\)\.$"),
        ("raise SystemExit(0)\n", "SystemExit: 0"),
    ],
)
def test_a_module_that_fails_to_import_is_reported_with_its_cause(folder: Path, source: str, cause: str) -> None:
    name = f"mine_broken_{len(source)}"
    (folder / f"{name}.py").write_text(source)
    with pytest.raises(UserCodeError, match=f"your module was found but failed to import: {cause}") as caught:
        import_function(f"{name}:build", flag="model")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("reference", "way_out"),
    [
        ("./nets/m.py:Net.make", "name it nets.m:Net.make"),
        ("my-net:net", "rename the file or the folder: a module's name has no hyphen"),
        ("m.py", "name a function as module:function"),
        ("__main__:net", "each rank has another __main__; pass the object itself to sweep()"),
    ],
)
def test_a_wrong_reference_is_answered_with_a_way_out(reference: str, way_out: str) -> None:
    with pytest.raises(UnknownNameError) as refused:
        import_function(reference, flag="--train")
    assert str(refused.value).startswith(f"--train={reference}: {way_out}")


def test_a_function_of_a_class_and_an_object_that_can_be_called_are_found(folder: Path) -> None:
    (folder / "mine_class.py").write_text(
        "class Net:\n    @staticmethod\n    def make(): return 1\n    def __call__(self): return 2\n"
        "net = Net()\nsize = 3\n"
    )
    assert import_function("mine_class:Net.make", flag="model")() == 1
    assert import_function("mine_class:net", flag="model")() == 2
    with pytest.raises(UnknownNameError, match=r"mine_class.py\) has no function size; "):
        import_function("mine_class:size", flag="model")
    with pytest.raises(UnknownNameError, match=r"has no function Ned; did you mean Net\?"):
        import_function("mine_class:Ned", flag="model")
    importlib.import_module("colorsys")
    (folder / "colorsys.py").touch()
    with pytest.raises(UnknownNameError, match=r"/colorsys.py\) has no function net; ./colorsys.py is another"):
        import_function("colorsys:net", flag="model")


@pytest.mark.parametrize("name", ["a:b", "a.b.c:d_e", "a:B.c"])
def test_a_reference_is_module_colon_function(name: str) -> None:
    assert is_reference(name)
    for other in (f"{name}:c", f"{name}.", f"a/{name}", f"a..{name}", "m.py:c", "convnet", "a:", ":b"):
        assert not is_reference(other)


STANDARD, INSTALLED = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, on a search path as that of a script in another folder."""
    for name in ("scripts", "editable", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "scripts"), STANDARD, INSTALLED, str(tmp_path / "editable")])
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_the_working_folder_comes_before_installed_packages_and_after_modules_of_python(work: Path) -> None:
    search_working_folder()
    search_working_folder()
    places = {entry: place for place, entry in enumerate(sys.path)}
    assert places[STANDARD] < places[str(work)] < places[INSTALLED]
    assert sys.path.count(str(work)) == 1


def test_a_module_of_the_user_hides_an_installed_one_of_its_name(work: Path) -> None:
    (work / "xdist.py").write_text("def build(): return 'mine'\n")
    hidden = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "xdist"}
    try:
        assert import_function("xdist:build", flag="model")() == "mine"
    finally:
        sys.modules.pop("xdist", None)
        sys.modules.update(hidden)


def test_another_process_searches_the_users_folders_in_the_same_order(work: Path) -> None:
    search_working_folder()
    scripts, editable = str(work.parent / "scripts"), str(work.parent / "editable")
    assert module_path() == (scripts, str(work), editable)
    script = (
        "import json, sys\nfrom dmls_ray.util.importing import module_path, search_module_path\n"
        f"search_module_path({module_path()!r})\nprint(json.dumps([*module_path(), *sys.path]))"
    )
    # As in a worker of Ray, the working folder is first there.
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=work, env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    there = json.loads(found.stdout)
    assert [folder for folder in there[:4] if folder != str(PROJECT)] == [scripts, str(work), editable]
    places = [there.index(folder, 4) for folder in (STANDARD, scripts, str(work), editable, INSTALLED)]
    assert places == sorted(places)


def test_a_folder_that_is_left_out_is_searched_under_none_of_its_names(work: Path) -> None:
    (work / "sweeps").mkdir()
    (work / "link").symlink_to(work / "sweeps")
    sys.path[:0] = [str(work / "link"), str(work / "sweeps")]
    leave_out_folder(str(work / "sweeps"))
    assert sys.path[0] == str(work.parent / "scripts")


def test_what_the_list_of_an_installation_names_is_installed_and_what_lies_beside_it_is_the_users(
    tmp_path: Path,
) -> None:
    """As `pip install --target` leaves it, in a folder of any name."""
    record = "tool.py,sha256=x,3\nspace/part/deep.py,,\ntool-1.0.dist-info/RECORD,,\n../../bin/tool,,"
    (tmp_path / "tool-1.0.dist-info").mkdir()
    (tmp_path / "tool-1.0.dist-info" / "RECORD").write_text(record)
    assert all(is_installed(str(tmp_path / name)) for name in ("tool.py", "space/part/deep.py"))
    assert not any(is_installed(str(tmp_path / name)) for name in ("mine.py", "space/mine.py", "space/part/mine.py"))


@pytest.mark.parametrize(
    ("listed_in", "text", "installed"),
    [
        ("tool.egg-info/installed-files.txt", "../tool.py\nPKG-INFO\n", True),
        # Beside the user's code, these are of an editable installation.
        ("tool.egg-info/top_level.txt", "tool\n", False),
        ("tool.egg-info/SOURCES.txt", "tool.py\n", False),
        ("tool-1.0.dist-info/METADATA", "Name: tool\n", False),
        ("tool-1.0.dist-info/RECORD", "__editable__.tool-1.0.pth,,\n", False),
    ],
)
def test_metadata_without_a_list_of_files_beside_it_make_no_file_installed(
    tmp_path: Path, listed_in: str, text: str, installed: bool
) -> None:
    (tmp_path / listed_in).parent.mkdir()
    (tmp_path / listed_in).write_text(text)
    assert is_installed(str(tmp_path / "tool.py")) is installed
    assert not is_installed(str(tmp_path / "mine.py"))


@pytest.mark.parametrize("folder", ["lib/site-packages", "lib/dist-packages", "tool-1.0-py3.egg", "tool-1.0-any.whl"])
def test_what_lies_in_a_folder_or_an_archive_of_packages_is_installed(tmp_path: Path, folder: str) -> None:
    assert is_installed(str(tmp_path / folder / "tool" / "part.py"))


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages that imports search."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def test_libraries_that_can_be_imported_are_and_leave_nothing_in_this_process(libraries: Path) -> None:
    (libraries / "library_one.py").write_text("import sys\nprint('noise', file=sys.stderr)\n")
    (libraries / "library_two.py").write_text("")
    check_libraries("library_one, library_two")
    assert "library_one" not in sys.modules


@pytest.mark.parametrize(
    ("name", "source", "reason"),
    [
        ("library_absent", None, "ModuleNotFoundError: No module named 'library_absent'"),
        ("library_broken", "1 / 0", "ZeroDivisionError: division by zero"),
        ("library_dead", "import os; os._exit(3)", "exit code 3"),
        (
            "library_threads",
            "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "ImportError: the import starts a thread or CUDA",
        ),
    ],
)
def test_a_library_that_runs_cannot_find_imported_is_refused_with_the_reason(
    libraries: Path, name: str, source: str | None, reason: str
) -> None:
    if source is not None:
        (libraries / f"{name}.py").write_text(source)
    with pytest.raises(ConfigError) as caught:
        check_libraries(name)
    assert str(caught.value).startswith(f"--preload {name}: {reason}")
    assert len(str(caught.value).splitlines()) == 1


def test_the_users_own_modules_are_no_libraries_since_edits_between_runs_would_have_no_effect(folder: Path) -> None:
    (folder / "mine_edited.py").write_text("")
    with pytest.raises(ConfigError, match="mine_edited.py is no file of an installed library"):
        check_libraries("mine_edited")
