from __future__ import annotations

from pathlib import Path

from dmls_ray.execution.run_folder import remove_checkpoints, run_folder
from dmls_ray.records.identity import Identity


def test_each_version_of_code_and_data_has_a_folder_and_a_run_of_the_packages_code_alone_the_plain_one(
    tmp_path: Path,
) -> None:
    identities = [Identity(), Identity(code={"m.py": "1"}), Identity(code={"m.py": "2"}), Identity(data={"d": "1"})]
    names = [run_folder(tmp_path, "a-0", identity).relative_to(tmp_path).as_posix() for identity in identities]
    assert names[0] == "runs/a-0"
    assert names[1:] == [f"runs/a-0-{identity.digest[:8]}" for identity in identities[1:]]
    assert len(set(names)) == 4


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
