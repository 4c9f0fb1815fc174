"""Which files a run reads that others wrote, and which it writes itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.workloads.script.conftest import BEGIN, LOOP, Runner


@pytest.fixture
def place(run: Runner, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder."""
    folder = tmp_path_factory.mktemp("place")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outside")


def files(run: Runner, source: str, **changes: object) -> tuple[list[str], list[str]]:
    """What a run of this code read and wrote."""
    result = run.one(f"{BEGIN}\n{source}\n{LOOP}", **changes)
    assert not result.reason
    assert result.run.facts["written_in_copy"] == []
    return result.run.facts["read"], result.run.facts["written"]


SAVES = """
os.makedirs({folder!r}, exist_ok=True)
name = os.path.join({folder!r}, "latest.pt")
if os.path.exists(name):
    torch.load(name)
torch.save(model.state_dict(), name)
torch.load(name)
"""


def test_a_checkpoint_that_is_read_again_is_known_in_the_working_folder_and_elsewhere(
    run: Runner, place: Path, outside: Path
) -> None:
    for folder, name in (("a/b/c/d", "a/b/c/d/latest.pt"), (f"{outside}/new", f"{outside}/new/latest.pt")):
        source = SAVES.format(folder=folder)
        assert files(run, source) == ([], [name])
        assert files(run, source) == ([name], [name])


def test_a_file_of_an_own_folder_is_no_other_runs(run: Runner, place: Path, outside: Path) -> None:
    source = SAVES.format(folder="here") + SAVES.format(folder=str(outside))
    for _ in range(2):
        read, written = files(run, source, own_folder=True)
    assert read == written == [f"{outside}/latest.pt"]


def test_a_file_and_a_folder_that_get_their_names_at_the_end_are_known_by_those(
    run: Runner, place: Path, outside: Path
) -> None:
    source = f"""
os.chdir({str(outside)!r})
for name in ("one", "two"):
    with open(name + ".tmp", "w") as file:
        file.write(name)
    os.replace(name + ".tmp", name + ".txt")
os.mkdir("tmp-checkpoint")
open("tmp-checkpoint/state.json", "w").write("x")
os.rename("tmp-checkpoint", "checkpoint")
open("gone.txt", "w").write("x")
os.remove("gone.txt")
"""
    assert files(run, source) == ([], [f"{outside}/{name}" for name in ("checkpoint/state.json", "one.txt", "two.txt")])


def test_an_empty_file_such_as_a_lock_is_nothing_to_go_on_from(run: Runner, place: Path) -> None:
    source = "for name in ('lock', 'state'): print('x' * (name == 'state'), end='', file=open(name, 'w'))"
    assert files(run, source) == ([], ["state"])


@pytest.mark.parametrize("folder", [".", "outside"])
def test_a_database_that_a_run_goes_on_from_is_known(run: Runner, place: Path, outside: Path, folder: str) -> None:
    name = "trials.db" if folder == "." else f"{outside}/trials.db"
    source = f"""
import sqlite3
for name in ({name!r}, ":memory:", ""):
    with sqlite3.connect(name) as database:
        database.execute("create table if not exists trials (value)")
        database.execute("insert into trials values (1)")
    database.close()
"""
    assert files(run, source) == ([], [name])
    assert files(run, source) == ([name], [name])
    assert files(run, f"import sqlite3\nsqlite3.connect({name!r}).execute('select * from trials')") == ([name], [])


def test_files_of_the_system_of_packages_and_hidden_ones_are_nobodys_checkpoints(run: Runner, place: Path) -> None:
    source = """
import json, torch.utils
for name in (json.__file__, torch.utils.__file__, "/proc/self/status", "/etc/hosts", "data.txt", ".hidden/data.txt"):
    open(name).read()
open(os.devnull, "w").write("x")
open(".hidden/written.txt", "w").write("x")
"""
    (place / ".hidden").mkdir()
    for name in ("data.txt", ".hidden/data.txt"):
        (place / name).touch()
    assert files(run, source) == (["data.txt"], [])


def test_of_many_files_those_are_named_that_changed_last(run: Runner, place: Path) -> None:
    source = """
import pathlib
for path in sorted(pathlib.Path("data").iterdir()):
    path.read_text()
"""
    (place / "data").mkdir()
    for number in range(100):
        path = place / "data" / f"{number:03}"
        path.touch()
        newest = (number + 30) % 100
        os.utime(path, (newest, newest))
    assert files(run, source) == ([f"data/{number:03}" for number in range(50, 70)], [])


def test_what_cannot_be_looked_at_is_left_to_the_program(run: Runner, place: Path) -> None:
    source = """
for name in ("nothing", "zero\\0", 10**6, b"\\xff"):
    try:
        open(name)
    except (OSError, ValueError) as error:
        print(type(error).__name__)
"""
    assert files(run, source) == ([], [])
    assert run.log.split()[:4] == ["FileNotFoundError", "ValueError", "OSError", "FileNotFoundError"]


def test_the_files_of_an_instrument_are_none_of_the_script(run: Runner, place: Path) -> None:
    # The ranks are forks of a server that was started with another folder.
    source = f"os.environ['DMLS_RAY_CACHE'] = {str(place / 'cache')!r}"
    for _ in range(2):
        assert files(run, source) == ([], [])
        assert [*(place / "cache" / "products").glob("*.json")]
