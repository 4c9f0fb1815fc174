"""What of a repository is copied for the runs of a revision, and what is linked."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.script import copied
from dmls_ray.workloads.script.revisions import copy_for
from tests.workloads.script.conftest import git


def test_environments_are_linked_and_results_and_inner_repositories_are_left_out(repository: Path) -> None:
    for path in (
        "env/pyvenv.cfg", "out/sweep/runs.jsonl", "out/sweep/sweep.json", "data/runs.jsonl", "inner/file.txt",
        "inner/__pycache__/file.pyc", "__pycache__/part.pyc",
    ):  # fmt: skip
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).touch()
    git("init", "--quiet", folder=repository / "inner")
    tree = copy_for("train.py", "before").tree
    assert (tree / "env").readlink() == repository / "env"
    assert [*(tree / "out").iterdir()] == []
    assert [path.name for path in (tree / "inner").iterdir()] == ["file.txt"]
    assert (tree / "data" / "runs.jsonl").exists()
    assert not (tree / "__pycache__").exists()


def test_no_link_of_a_copy_leads_to_a_file_of_the_user(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "latest.pt").write_text("state")
    (outside / "link.pt").symlink_to("latest.pt")
    (outside / "again").symlink_to(outside)
    (outside / "circle").symlink_to("circle")
    for name, target in {
        "in": "data/numbers.txt", "absolute": repository / "data", "out": outside, "file": outside / "link.pt",
        "new": tmp_path / "new.pt", "data/up": "../settings.txt",
    }.items():  # fmt: skip
        (repository / name).symlink_to(target)
    (repository / "tracked").symlink_to("../outside/latest.pt")
    git("add", "tracked", folder=repository)
    git("commit", "--quiet", "-m", "link", folder=repository)
    for state in ("state", "later"):  # the second finds what the first has made
        (outside / "latest.pt").write_text(state)
        tree = copy_for("train.py", "HEAD").tree
        links = {str(path.relative_to(tree)): str(path.readlink()) for path in tree.rglob("*") if path.is_symlink()}
        assert links == {
            "in": "data/numbers.txt", "absolute": "data", "data/up": "../settings.txt", "out/link.pt": "latest.pt",
            "out/again": ".", "out/circle": "circle",
        }  # fmt: skip
        assert {(tree / path).read_text() for path in ("out/latest.pt", "file", "tracked")} == {state}


def test_too_much_that_git_does_not_track_is_refused_by_its_largest_part(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "data" / "more.bin").write_bytes(bytes(2000))
    (repository / "small.bin").write_bytes(bytes(10))
    monkeypatch.setattr(copied, "can_clone", lambda source, folder: False)
    monkeypatch.setattr(copied, "MOST_BYTES", 1000)
    with pytest.raises(ConfigError, match=r"has 1.88e-06 GiB that git .* data has 1.87e-06 GiB: --share data lets"):
        copy_for("train.py", "before")
    tree = copy_for("train.py", "before", ["data"]).tree
    assert (tree / "data").readlink() == repository / "data"
    monkeypatch.setattr(copied, "can_clone", lambda source, folder: True)
    assert not (copy_for("train.py", "before").tree / "data").is_symlink()
    monkeypatch.setattr(copied, "MOST_FILES", 2)
    with pytest.raises(ConfigError, match=r"has 3 files that git .* data has 2 files: --share data lets"):
        copy_for("train.py", "before")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("nothing", "--share nothing: there is no such file or folder"),
        ("..", "--share ..: it is not in the repository"),
        ("settings.txt", "--share settings.txt: git tracks it"),
    ],
)
def test_what_cannot_be_shared_is_refused(repository: Path, name: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        copy_for("train.py", "before", [name])


def test_a_file_that_git_tracks_in_the_revision_has_the_place_of_one_that_it_does_not_track_now(
    repository: Path,
) -> None:
    (repository / "assets").mkdir()
    (repository / "assets" / "numbers.txt").write_text("tracked")
    git("add", "assets", folder=repository)
    git("commit", "--quiet", "-m", "assets", folder=repository)
    git("tag", "--force", "before", folder=repository)
    git("rm", "--quiet", "-r", "assets", folder=repository)
    git("rm", "--quiet", "--cached", "settings.txt", "part.py", folder=repository)
    (repository / "assets").symlink_to("data")
    (repository / "part.py").unlink()
    (repository / "part.py").mkdir()
    (repository / "part.py" / "inner.txt").touch()
    tree = copy_for("train.py", "before").tree
    assert (tree / "settings.txt").read_text() == "new"
    assert (tree / "part.py").read_text() == "NAME = 'new'\n"
    assert (tree / "assets" / "numbers.txt").read_text() == "tracked"
    assert (tree / "data" / "numbers.txt").read_text() == "untracked"


def test_a_file_whose_name_begins_and_ends_with_white_space_is_copied(repository: Path) -> None:
    for name in (" first", "last\n"):
        (repository / name).touch()
    assert {" first", "last\n"} <= {path.name for path in copy_for("train.py", "before").tree.iterdir()}
