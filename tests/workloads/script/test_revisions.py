"""Revisions of a script: which commit a name means, and the copy of the repository in which a run starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dmls_ray.execution.planning import Identities
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.workloads.script.paths import word_in_copy
from dmls_ray.workloads.script.revisions import RepositoryCopy, copy_for
from dmls_ray.workloads.script.workload import ScriptWorkload
from tests.workloads.script.conftest import BEGIN, LOOP, Runner, git


def stamp(path: Path) -> tuple[bytes, int]:
    return path.read_bytes(), path.stat().st_mtime_ns


def test_a_copy_has_the_files_of_the_commit_and_those_that_git_does_not_track(repository: Path) -> None:
    tree = copy_for("train.py", "before").tree
    assert (tree / "settings.txt").read_text() == "old"
    assert stamp(tree / "data" / "numbers.txt") == stamp(repository / "data" / "numbers.txt")
    assert not (tree / "data").is_symlink()
    assert git("rev-parse", "HEAD", folder=tree) == git("rev-parse", "before", folder=repository)
    assert git("status", "--porcelain", folder=tree) == ""


def test_the_repository_stays_as_it_is(repository: Path) -> None:
    before = git("status", "--porcelain", folder=repository), (repository / ".git" / "HEAD").read_text()
    copy_for("train.py", "before")
    assert (git("status", "--porcelain", folder=repository), (repository / ".git" / "HEAD").read_text()) == before
    assert len(git("worktree", "list", folder=repository).splitlines()) == 1


def test_what_changes_later_is_copied_by_the_next_sweep(repository: Path) -> None:
    copy_for("train.py", "before")
    (repository / "more.txt").write_text("more")
    (repository / "data" / "numbers.txt").unlink()
    tree = copy_for("train.py", "before").tree
    assert (tree / "more.txt").read_text() == "more"
    assert [*(tree / "data").iterdir()] == []


def test_a_point_means_the_files_as_they_are_in_a_copy(repository: Path) -> None:
    (repository / "settings.txt").write_text("edited")
    (repository / "part.py").unlink()
    copy = copy_for("train.py", ".")
    assert copy.commit == ""
    assert (copy.tree / "settings.txt").read_text() == "edited"
    assert git("status", "--porcelain", folder=copy.tree) == git("status", "--porcelain", folder=repository)
    del copy
    git("commit", "--quiet", "-am", "edited", folder=repository)
    tree = copy_for("train.py", ".").tree
    assert git("rev-parse", "HEAD", folder=tree) == git("rev-parse", "HEAD", folder=repository)


def test_shared_files_are_for_revisions(repository: Path) -> None:
    schema = ScriptWorkload("train.py", shared=["data"]).schema()
    with pytest.raises(ConfigError, match="--share data is for runs of a --revision"):
        schema.make()
    assert schema.make(revision="before").copy.shared == ("data",)


def test_a_working_folder_outside_of_the_repository_is_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "train.py").write_text("print()")
    monkeypatch.chdir(repository.parent)
    workload = ScriptWorkload("repository/train.py")
    schema = workload.schema()
    with pytest.raises(ConfigError, match=r"--revision \.: runs would write into .* or add --own-folder"):
        workload.check([schema.make(revision=".")])
    workload.check([schema.make(revision=".", own_folder=True)])


def in_process(code: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


TAKE = """
import sys
from pathlib import Path
from dmls_ray.workloads.script.revisions import RepositoryCopy
root, commit, sweep, *runs = sys.argv[1:]
print(*(RepositoryCopy(Path(root), commit, (), sweep).take(run).name for run in runs), flush=True)
sys.stdin.read()
"""


def test_a_folder_is_for_one_run_until_its_processes_end(repository: Path) -> None:
    copy = copy_for("train.py", "before")
    given = (str(copy.root), copy.commit, copy.sweep)
    held = [in_process(TAKE, *given, run) for run in ("one", "two", "one")]
    names = []
    for process in held:
        assert process.stdout is not None
        names.append(process.stdout.readline().strip())
    assert len({names[0], names[1]}) == 2
    assert names[2] == names[0]
    for process in (held[0], held[2]):
        process.communicate()
    last = in_process(TAKE, *given, "three")
    assert last.communicate()[0].strip() == names[0]
    held[1].communicate()


def test_a_folder_is_as_in_the_beginning_for_each_run(repository: Path) -> None:
    copy = copy_for("train.py", "before")
    given = (str(copy.root), copy.commit, copy.sweep)
    code = """
    import json, os, pathlib
    os.chdir(RepositoryCopy(Path(root), commit, (), sweep).take("run"))
    here = pathlib.Path()
    seen = {str(path): path.read_text() for path in here.rglob("*.txt")}
    print(json.dumps([seen, len([*here.glob("__pycache__/*.pyc")])]))
    (here / "data" / "numbers.txt").write_text("longer than before")
    (here / "settings.txt").unlink()
    (here / "new" / "folder").mkdir(parents=True)
    (here / "new" / "folder" / "state.txt").write_text("state")
    (here / "link.txt").symlink_to("settings.txt")
    (here / "__pycache__").mkdir(exist_ok=True)
    (here / "__pycache__" / "part.pyc").touch()
    """
    program = TAKE.partition("print")[0] + textwrap.dedent(code)
    first, second = (in_process(program, *given).communicate()[0].strip() for _ in range(2))
    seen = {"settings.txt": "old", "data/numbers.txt": "untracked"}
    assert (json.loads(first), json.loads(second)) == ([seen, 0], [seen, 1])
    assert (repository / "data" / "numbers.txt").read_text() == "untracked"


def numbers_of_run(copy: RepositoryCopy) -> str:
    """What a run of a sweep finds in the file that git does not track, on any machine."""
    name = in_process(TAKE, str(copy.root), copy.commit, copy.sweep, "run").communicate()[0].strip()
    return (copy.tree.parent / name / "data" / "numbers.txt").read_text()


@pytest.mark.parametrize("revision", ["before", "."])
def test_each_of_two_sweeps_at_once_runs_what_it_began_with(repository: Path, revision: str) -> None:
    first = copy_for("train.py", revision)
    (repository / "data" / "numbers.txt").write_text("changed")
    second = copy_for("train.py", revision)
    (repository / "data" / "numbers.txt").write_text("again")
    assert [numbers_of_run(copy) for copy in (first, second, first)] == ["untracked", "changed", "untracked"]


def test_the_tree_of_a_sweep_whose_command_has_ended_is_that_of_the_next_one(repository: Path) -> None:
    code = """
    import os
    from dmls_ray.workloads.script.revisions import copy_for
    copy = copy_for("train.py", "before")
    print(copy.tree.stat().st_ino, flush=True)
    os.kill(os.getpid(), 9)
    """
    first, second = (in_process(code).communicate()[0] for _ in range(2))
    assert first == second
    assert len([*(repository.parent / "cache").glob("revisions/*/*.tree*")]) == 2  # with its lock


def test_a_rank_on_another_machine_makes_a_tree_which_is_its_sweeps_for_a_day(repository: Path) -> None:
    commit = git("rev-parse", "before", folder=repository)
    first, second = (RepositoryCopy(repository, commit, (), name) for name in ("one", "two"))
    assert numbers_of_run(first) == "untracked"
    (repository / "data" / "numbers.txt").write_text("changed")
    assert [numbers_of_run(first), numbers_of_run(second)] == ["untracked", "changed"]
    os.utime(first.tree, (0, 0))
    assert numbers_of_run(RepositoryCopy(repository, commit, (), "three")) == "changed"
    assert (first.tree.exists(), second.tree.exists()) == (False, True)


def test_copies_that_no_sweep_has_used_for_long_are_removed(repository: Path) -> None:
    old, held = copy_for("train.py", "before").tree, copy_for("train.py", "HEAD")
    process = in_process(TAKE, str(held.root), held.commit, held.sweep, "run")
    assert process.stdout is not None
    process.stdout.readline()
    for tree in (old, held.tree):
        os.utime(tree.parent / "lock", (0, 0))
    copy_for("train.py", ".")
    process.communicate()
    assert not old.exists()
    assert held.tree.exists()


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
        copy_for(script, revision)


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


CHECKPOINT = """
import os, sys
name = sys.argv[sys.argv.index("--out") + 1] if "--out" in sys.argv else "data/latest.pt"
count = int(open(name).read()) if os.path.exists(name) else 0
print("COUNT", count)
open(name, "w").write(str(count + 1))
sys.argv = sys.argv[:1]
"""


@pytest.mark.parametrize("revision", ["before", "."])
@pytest.mark.parametrize("out", ["data/latest.pt", "{here}/data/latest.pt", "{here}/fresh.pt"])
def test_runs_start_from_the_users_checkpoint_each_and_leave_it_alone(
    repository: Path, servers: list[ForkServer], tmp_path: Path, revision: str, out: str
) -> None:
    script = repository / "train.py"
    script.write_text(CHECKPOINT + BEGIN + LOOP)
    git("commit", "--quiet", "-am", "checkpoint", folder=repository)
    git("tag", "--force", "before", folder=repository)
    checkpoint = repository / "data" / "latest.pt"
    checkpoint.write_text("400")
    before, files = stamp(checkpoint), {*repository.rglob("*")}
    runner = Runner(servers, tmp_path)
    words = ["--out", out.format(here=repository)]
    config = ScriptWorkload("train.py", words).schema().make(revision=revision, seed_flag="none", steps=12)
    for _ in range(2):
        (result,) = runner.run(config)
        assert result.outcome is Outcome.OK, result.reason
        assert runner.log.splitlines()[0] == ("COUNT 0" if "fresh" in out else "COUNT 400")
        assert result.run.facts["written"] == []
        assert result.run.facts["read"] == ([] if "fresh" in out else ["data/latest.pt"])
        assert result.run.facts["written_in_copy"] == ["fresh.pt" if "fresh" in out else "data/latest.pt"]
    assert stamp(checkpoint) == before
    assert {path for path in repository.rglob("*") if ".git" not in path.parts} == {
        path for path in files if ".git" not in path.parts
    }


def test_the_ranks_of_a_run_share_one_folder(repository: Path, servers: list[ForkServer], tmp_path: Path) -> None:
    source = """
    import os
    import torch.distributed as dist
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        open("shared.txt", "w").write("by rank 0")
    dist.barrier()
    print(open("shared.txt").read())
    """
    (repository / "train.py").write_text(textwrap.dedent(source) + BEGIN + LOOP)
    runner = Runner(servers, tmp_path)
    config = ScriptWorkload("train.py").schema().make(revision=".", seed_flag="none", steps=12, world_size=2)
    for result in runner.run(config):
        assert result.outcome is Outcome.OK, result.reason
    assert (tmp_path / "rank1.log").read_text().startswith("by rank 0")
    assert not (repository / "shared.txt").exists()


def test_what_is_shared_is_read_where_it_is_and_written_only_where_the_system_cannot_see_to_it(
    repository: Path, servers: list[ForkServer], tmp_path: Path
) -> None:
    source = """
    print(open("data/numbers.txt").read())
    try:
        open("data/numbers.txt", "w").write("by a run")
    except OSError as error:
        print(error.strerror)
    """
    (repository / "train.py").write_text(textwrap.dedent(source) + BEGIN + LOOP)
    runner = Runner(servers, tmp_path)
    schema = ScriptWorkload("train.py", shared=["data"]).schema()
    (result,) = runner.run(schema.make(revision=".", seed_flag="none", steps=12))
    assert result.outcome is Outcome.OK, result.reason
    first, second, *_ = [*runner.log.splitlines(), ""]
    assert first == "untracked"
    can_mount = in_process(
        "import sys; from dmls_ray.util.mirror import make_read_only; print(make_read_only([sys.argv[1]]))",
        str(repository / "data"),
    )
    if can_mount.communicate()[0].strip() == "True":
        assert second == "Read-only file system"
        assert (repository / "data" / "numbers.txt").read_text() == "untracked"
    else:
        assert result.run.facts["written"] == [str(repository / "data" / "numbers.txt")]
    (repository / "data" / "numbers.txt").write_text("only that process cannot")


def test_the_working_folder_is_in_the_copy_also_where_the_revision_lacks_it(
    repository: Path, servers: list[ForkServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "later").mkdir()
    monkeypatch.chdir(repository / "later")
    runner = Runner(servers, tmp_path)
    (repository / "train.py").write_text("open('written.txt', 'w').write('x')\n" + BEGIN + LOOP)
    git("commit", "--quiet", "-am", "writes", folder=repository)
    (repository / "later" / "part.py").touch()
    git("add", ".", folder=repository)
    git("commit", "--quiet", "-m", "a folder", folder=repository)
    (result,) = runner.run(ScriptWorkload("../train.py").schema().make(revision="HEAD~1", seed_flag="none", steps=12))
    assert result.outcome is Outcome.OK, result.reason
    assert result.run.facts["written_in_copy"] == ["written.txt"]
    assert [path.name for path in (repository / "later").iterdir()] == ["part.py"]


@pytest.mark.parametrize("path", ["data/numbers.txt", "later.log", "results/x", "results/lr=0.1/x"])
def test_a_path_in_the_repository_is_that_in_the_copy_whether_it_is_there_or_not(repository: Path, path: str) -> None:
    alias = repository.parent / "alias"
    alias.symlink_to(repository)
    folder = copy_for("train.py", "before").tree
    (repository / "later.log").touch()  # after the copy was made
    for given in (repository / path, alias / path):
        assert word_in_copy(str(given), repository, folder) == str(folder / path)
        assert word_in_copy(f"--to={given}", repository, folder) == f"--to={folder / path}"
    assert word_in_copy("/elsewhere/x", repository, folder) == "/elsewhere/x"
    assert word_in_copy(path, repository, folder) == path


def test_variables_that_are_paths_in_the_repository_are_those_in_the_copy(
    repository: Path, servers: list[ForkServer], tmp_path: Path
) -> None:
    names = "os.path.join(os.environ['PWD'], 'a'), os.environ['TO']"
    script = f"import os\nfor name in ({names}): open(name, 'w').write('x')\n"
    (repository / "train.py").write_text(script + BEGIN + LOOP)
    git("commit", "--quiet", "-am", "writes", folder=repository)
    variables = {"TO": str(repository / "b"), "PWD": str(repository)}
    schema = ScriptWorkload("train.py", variables=variables).schema()
    config = schema.make(revision="HEAD", seed_flag="none", steps=12, **variables)
    (result,) = Runner(servers, tmp_path).run(config)
    assert result.outcome is Outcome.OK, result.reason
    assert result.run.facts["written_in_copy"] == ["a", "b"]
    assert not {"a", "b"} & {path.name for path in repository.iterdir()}


def test_sources_that_are_edited_meanwhile_change_nothing_of_a_sweep_of_the_files_as_they_are(
    repository: Path, servers: list[ForkServer], tmp_path: Path
) -> None:
    runner = Runner(servers, tmp_path)
    workload = ScriptWorkload("train.py")
    config = workload.schema().make(revision=".", seed_flag="none", steps=12)
    identity = Identities(workload).of(config)
    for _ in range(2):
        (result,) = runner.run(config, identity)
        assert result.outcome is Outcome.OK, result.reason
        assert runner.log.startswith("READ new")
        (repository / "part.py").write_text("NAME = 'edited'\n")
    later = workload.schema().make(revision=".", seed_flag="none", steps=12)
    (result,) = runner.run(later, identity)  # as on a machine with other files
    assert "are not those that the sweep began with (part.py)" in result.reason


def test_sources_without_a_revision_are_those_of_the_beginning_or_the_run_ends(
    repository: Path, servers: list[ForkServer], tmp_path: Path
) -> None:
    runner = Runner(servers, tmp_path)
    workload = ScriptWorkload("train.py")
    config = workload.schema().make(seed_flag="none", steps=12)
    identity = Identities(workload).of(config)
    (result,) = runner.run(config, identity)
    assert result.outcome is Outcome.OK, result.reason
    (repository / "part.py").write_text("NAME = 'edited'\n")
    (result,) = runner.run(config, identity)
    assert "are not those that the sweep began with (part.py)" in result.reason


@pytest.mark.parametrize("revision", ["HEAD", "."])
def test_modules_that_come_from_the_files_as_they_are_end_the_run(
    repository: Path, servers: list[ForkServer], tmp_path: Path, revision: str
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
    config = ScriptWorkload("train.py").schema().make(revision=revision, seed_flag="none", steps=12)
    (result,) = runner.run(config)
    assert result.outcome is Outcome.ERROR
    assert "part came from the repository itself" in result.reason
