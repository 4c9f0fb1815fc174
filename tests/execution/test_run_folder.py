from __future__ import annotations

from pathlib import Path

from dmls_ray.execution.run_folder import VERSION, prepare_run_folder, remove_checkpoints


def test_the_files_of_another_version_are_moved_aside_and_those_of_the_same_stay(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a-0"
    for digest in ("1" * 16, "1" * 16, "2" * 16, "1" * 16, "2" * 16):
        prepare_run_folder(folder, digest)
        with open(folder / "state.pt", "a") as file:
            file.write(digest[0])
    assert {path.parent.name: path.read_text() for path in folder.parent.glob("*/state.pt")} == {
        "a-0": "2", "a-0-11111111": "11", "a-0-22222222": "2", "a-0-11111111-2": "1",
    }  # fmt: skip


def test_a_file_of_the_user_named_version_stays_where_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    prepare_run_folder(folder, "1" * 16)
    (folder / "version").write_text("of the user's state")
    prepare_run_folder(folder, "1" * 16)
    assert [path.name for path in tmp_path.iterdir()] == ["a-0"]
    assert (folder / "version").read_text() == "of the user's state"


def test_a_run_of_the_packages_code_alone_keeps_its_folder(tmp_path: Path) -> None:
    prepare_run_folder(tmp_path / "a-0", "")
    assert not (tmp_path / "a-0").exists()
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / "state.pt").write_text("")
    prepare_run_folder(tmp_path / "a-0", "")
    assert (tmp_path / "a-0" / "state.pt").exists()


def test_files_of_an_unknown_version_are_moved_aside(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / "state.pt").write_text("")
    prepare_run_folder(tmp_path / "a-0", "1" * 16)
    assert (tmp_path / "a-0-earlier" / "state.pt").exists()
    assert [path.name for path in (tmp_path / "a-0").iterdir()] == [VERSION]


def test_only_the_checkpoints_of_ranks_are_deleted_and_none_behind_a_link(tmp_path: Path) -> None:
    names = ("3.rank-0.pt", "3.rank-1.pt", "of_the_user.pt")
    for folder in (tmp_path / "a-0", tmp_path / "elsewhere"):
        (folder / "checkpoints").mkdir(parents=True)
        for name in names[: 2 if folder.name == "a-0" else 3]:
            (folder / "checkpoints" / name).touch()
    (tmp_path / "b-0").mkdir()
    (tmp_path / "b-0" / "checkpoints").symlink_to(tmp_path / "elsewhere" / "checkpoints")
    (tmp_path / "c-0").symlink_to(tmp_path / "elsewhere")
    for run_id in ("a-0", "b-0", "c-0", "absent"):
        remove_checkpoints(tmp_path / run_id)
    assert not (tmp_path / "a-0" / "checkpoints").exists()
    assert len(list((tmp_path / "elsewhere" / "checkpoints").iterdir())) == 3
    remove_checkpoints(tmp_path / "elsewhere")
    assert [path.name for path in (tmp_path / "elsewhere" / "checkpoints").iterdir()] == ["of_the_user.pt"]
