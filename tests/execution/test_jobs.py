from __future__ import annotations

from pathlib import Path

from dmls_ray.execution.jobs import remove_checkpoints


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
