"""The workload of commands: which files make other trials, and what is refused before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dmls_ray.config.identity import Identity
from dmls_ray.config.sweep_file import read_sweep_file
from dmls_ray.execution.planning import Identities
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.command.workload import CommandWorkload
from dmls_ray.workloads.registry import workload, workload_of_command
from tests.workloads.script.conftest import git


def identity(revision: str, shared: tuple[str, ...] = ()) -> Identity:
    """That of a run which a new command asks for."""
    bench = CommandWorkload("sh", ["bench.sh"], shared=shared)
    return Identities(bench).of(bench.schema().make(revision=revision))


def code_of(revision: str) -> Mapping[str, str]:
    return identity(revision).code


@pytest.mark.parametrize("file", ["settings.txt", "notes.txt", "bench.sh", ".hidden", "folder/more.txt"])
def test_an_edited_or_a_new_file_makes_other_trials_of_the_files_as_they_are_and_an_undo_the_same(
    repository: Path, file: str
) -> None:
    path, before = repository / file, code_of(".")
    content = path.read_text() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text("edited")
    assert code_of(".") != before
    path.unlink()
    if content is not None:
        assert code_of(".") != before
        path.write_text(content)
    assert code_of(".") == before


def test_of_a_commit_only_files_that_git_does_not_track_may_make_other_trials(repository: Path) -> None:
    before = code_of("before")
    (repository / "settings.txt").write_text("edited")
    assert code_of("before") == before
    (repository / "notes.txt").write_text("edited")
    assert code_of("before").keys() == before.keys()
    assert code_of("before") != before
    assert before["revision before()"] == git("rev-parse", "before", folder=repository)


def test_a_commit_without_a_change_of_files_and_a_results_folder_make_no_other_trials(repository: Path) -> None:
    before = code_of(".")
    git("commit", "--quiet", "--allow-empty", "-m", "later", folder=repository)
    results = repository / "results" / "bench-ab"
    results.mkdir(parents=True)
    (results / "sweep.json").write_text("{}")
    (results / "runs.jsonl").write_text("")
    assert code_of(".") == before


def test_what_is_shared_is_not_looked_at(repository: Path) -> None:
    (repository / "data").mkdir()
    (repository / "data" / "large.bin").write_text("one")
    before = identity(".", ("data",))
    (repository / "data" / "large.bin").write_text("two")
    assert identity(".", ("data",)) == before


@pytest.mark.parametrize(
    ("words", "revision", "line"),
    [
        ("./missing.sh", "before", r"--revision before: \./missing\.sh is no command there"),
        ("./settings.txt", ".", r"--revision \.: \./settings\.txt is no command there"),
        ("no-such-program-anywhere", ".", r"--revision \.: no-such-program-anywhere is no command there"),
        ("./later.sh", "before", r"--revision before: \./later\.sh is no command there"),
        ("./bench.sh", "mian", "--revision mian: .* has no such revision"),
        ("./bench.sh {size}", ".", r"\{size\} among the words after -- is filled by nothing; give --set size"),
    ],
)
def test_what_cannot_be_run_is_refused(repository: Path, words: str, revision: str, line: str) -> None:
    (repository / "later.sh").write_text("#!/bin/sh\n")
    (repository / "later.sh").chmod(0o755)
    git("add", "later.sh", folder=repository)
    git("commit", "--quiet", "-m", "later", folder=repository)
    bench = workload_of_command(words.split())
    with pytest.raises(ConfigError, match=line):
        bench.check([bench.schema().make(revision=revision)])


def test_a_program_of_the_path_and_a_command_in_a_folder_of_the_repository_are_found(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "tools").mkdir()
    (repository / "bench.sh").rename(repository / "tools" / "bench.sh")
    monkeypatch.chdir(repository / "tools")
    for program in ("sh", "./bench.sh", "../tools/bench.sh", str(repository / "tools" / "bench.sh")):
        assert CommandWorkload(program).schema().make(revision=".")


def test_several_ranks_a_missing_revision_and_a_folder_without_repository_are_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = CommandWorkload("./bench.sh")
    with pytest.raises(ConfigError, match="--world-size 2: a command has one rank"):
        bench.check([bench.schema().make(revision=".", world_size=2)])
    with pytest.raises(ConfigError, match="needs a value of revision"):
        bench.schema().make()
    with pytest.raises(ConfigError, match="--workload command: give .* command PROGRAM"):
        workload("command").schema()
    monkeypatch.chdir(repository.parent)
    with pytest.raises(ConfigError, match=r"--revision \.: .* is in no git repository"):
        bench.schema().make(revision=".")


def test_a_variable_and_a_name_in_braces_are_fields_and_the_seed_fills_its_braces(repository: Path) -> None:
    bench = CommandWorkload("./bench.sh", ["--seed={seed}", "--size", "{size}"], variables={"LIBRARIES": "1"})
    config = bench.schema().make(revision=".", size=3, LIBRARIES="2", seed=7)
    assert config.words() == ["--seed=7", "--size", "3"]
    assert config.variables() == {"LIBRARIES": "2"}
    assert "steps" not in config.canonical()


def test_a_sweep_file_describes_a_command(repository: Path, tmp_path: Path) -> None:
    bench = CommandWorkload("./bench.sh", ["{size}"], patterns={"score": "x"})
    described = bench.describe_sweep({"revision": ["before", "."], "size": [1, 2]})
    assert described["command"] == ["./bench.sh", "{size}"]
    assert (described["axes"], described["set"]) == ({"revision": ["before", "."]}, {"size": [1, 2]})
    (tmp_path / "sweep.toml").write_text('command = ["./bench.sh", "-x"]\n[axes]\nrevision = ["before"]\n')
    _, what = read_sweep_file(str(tmp_path / "sweep.toml"))
    assert what.command == ["./bench.sh", "-x"]
