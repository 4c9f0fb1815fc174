"""Revisions of a script: which commit a name means, and the copy of the repository in which a run starts."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.workloads.script.revisions import commit_of, copy_of, script_at
from dmls_ray.workloads.script.workload import ScriptWorkload
from tests.workloads.script.conftest import BEGIN, LOOP, Runner


def git(*words: str, folder: Path) -> str:
    named = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", *named, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a script, a module and a file that the script reads: `old` in tag `before`, `new` in HEAD."""
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "--quiet", folder=folder)
    script = """
    import argparse, part
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    print("READ", part.NAME, open("settings.txt").read(), open("data/numbers.txt").read(), parser.parse_args())
    """
    (folder / "train.py").write_text(textwrap.dedent(script) + BEGIN + LOOP)
    (folder / ".gitignore").write_text("data/\n")
    for name in ("old", "new"):
        (folder / "part.py").write_text(f"NAME = '{name}'\n")
        (folder / "settings.txt").write_text(name)
        git("add", ".", folder=folder)
        git("commit", "--quiet", "-m", name, folder=folder)
        if name == "old":
            git("tag", "before", folder=folder)
    (folder / "data").mkdir()
    (folder / "data" / "numbers.txt").write_text("untracked")
    return folder


def test_a_copy_has_the_files_of_the_commit_and_links_what_git_does_not_track(repository: Path) -> None:
    copy = script_at("train.py", commit_of("train.py", "before")).parent
    assert (copy / "settings.txt").read_text() == "old"
    assert (copy / "data").is_symlink()
    assert git("rev-parse", "HEAD", folder=copy) == git("rev-parse", "before", folder=repository)


def test_the_repository_stays_as_it_is(repository: Path) -> None:
    before = git("status", "--porcelain", folder=repository), (repository / ".git" / "HEAD").read_text()
    commit_of("train.py", "before")
    assert (git("status", "--porcelain", folder=repository), (repository / ".git" / "HEAD").read_text()) == before
    assert len(git("worktree", "list", folder=repository).splitlines()) == 1


def test_files_that_appear_later_are_linked_by_the_next_sweep(repository: Path) -> None:
    copy = copy_of(repository, commit_of("train.py", "before"))
    (repository / "more.txt").write_text("more")
    commit_of("train.py", "before")
    assert (copy / "more.txt").read_text() == "more"


def test_a_point_means_the_files_as_they_are(repository: Path) -> None:
    assert commit_of("train.py", ".") == ""
    assert script_at("train.py", "") == Path("train.py")


@pytest.mark.parametrize(
    ("script", "revision", "line"),
    [
        ("train.py", "mian", "--revision mian: .* has no such revision; give a branch, a tag or a commit"),
        ("other.py", "before", "--revision before has no other.py"),
        ("../alone.py", "main", "--revision main: ../alone.py is in no git repository"),
    ],
)
def test_what_git_does_not_know_is_refused(repository: Path, script: str, revision: str, line: str) -> None:
    (repository / "other.py").touch()
    (repository.parent / "alone.py").touch()
    with pytest.raises(ConfigError, match=line):
        commit_of(script, revision)


def test_a_flag_that_one_revision_lacks_is_refused_before_anything_starts(repository: Path) -> None:
    git("mv", "train.py", "run.py", folder=repository)
    script = (repository / "run.py").read_text()
    (repository / "run.py").write_text(script.replace('"--batch-size"', '"--chunk"'))
    git("add", ".", folder=repository)
    git("commit", "--quiet", "-m", "other flag", folder=repository)
    git("tag", "chunk", folder=repository)
    (repository / "run.py").write_text(script)
    workload = ScriptWorkload("run.py")
    schema = workload.schema()
    with pytest.raises(ConfigError, match=r"--batch-size 8.* at --revision chunk: unrecognized arguments"):
        workload.check([schema.make(batch_size=8, revision=name) for name in (".", "chunk")])


def test_a_moved_branch_makes_other_trials(repository: Path) -> None:
    git("checkout", "--quiet", "-b", "work", folder=repository)
    workload = ScriptWorkload("train.py")
    before = workload.functions(workload.schema().make(revision="work"))
    git("commit", "--quiet", "--allow-empty", "-m", "later", folder=repository)
    after = workload.functions(workload.schema().make(revision="work"))
    assert before.keys() == after.keys() == {"revision work"}
    assert before != after


def test_a_run_has_the_code_the_files_and_the_working_folder_of_its_revision(
    repository: Path, servers: list[ForkServer], tmp_path: Path
) -> None:
    runner = Runner(servers, tmp_path)
    schema = ScriptWorkload("train.py").schema()
    printed = {}
    for revision in ("before", "HEAD"):
        config = schema.make(revision=revision, seed_flag="none", steps=12)
        (result,) = runner.run(config)
        assert result.outcome is Outcome.OK, result.reason
        printed[revision] = runner.log.splitlines()[0]
    assert printed["before"].startswith("READ old old untracked")
    assert printed["HEAD"].startswith("READ new new untracked")


def test_modules_that_come_from_the_files_as_they_are_end_the_run(
    repository: Path, servers: list[ForkServer], tmp_path: Path
) -> None:
    script = (repository / "train.py").read_text()
    finder = f"""
    import importlib.util, sys
    spec = importlib.util.spec_from_file_location("part", {str(repository / "part.py")!r})
    sys.modules["part"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["part"])
    """
    (repository / "train.py").write_text(textwrap.dedent(finder) + script)
    git("commit", "--quiet", "-am", "as an editable installation", folder=repository)
    runner = Runner(servers, tmp_path)
    config = ScriptWorkload("train.py").schema().make(revision="HEAD", seed_flag="none", steps=12)
    (result,) = runner.run(config)
    assert result.outcome is Outcome.ERROR
    assert "part came from the files as they are" in result.reason
