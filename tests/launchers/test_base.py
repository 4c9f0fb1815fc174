"""The launchers: one module each, found by configurations without importing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.config import launcher_names
from dmls_ray.config.fields import field_specs
from dmls_ray.config.launcher_names import launcher_facts
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.base import Launcher, infeasible_reason, launcher
from dmls_ray.util.errors import ConflictError


def test_the_choices_of_the_flag_are_the_modules_in_their_order() -> None:
    assert tuple(launcher_facts()) == ("ray", "inline", "spawn", "torchrun", "mpirun")
    assert field_specs(RuntimeConfig)["launcher"].choices == tuple(launcher_facts())


@pytest.mark.parametrize("name", [name for name in launcher_facts() if name != "ray"])
def test_every_launcher_has_a_command(name: str) -> None:
    assert isinstance(launcher(name), Launcher)
    if not infeasible_reason(RuntimeConfig(launcher=name)):
        command = launcher(name).command(RuntimeConfig(launcher=name), ["-m", "dmls_ray.launchers", "folder"])
        assert command[-3:] == ["-m", "dmls_ray.launchers", "folder"]


def test_the_worker_group_is_always_feasible() -> None:
    assert infeasible_reason(RuntimeConfig()) == ""


def test_a_launcher_of_one_process_and_the_backend_of_another_are_conflicts() -> None:
    with pytest.raises(
        ConflictError, match="launcher=inline is one process and world_size=2 .* spawn, torchrun or mpi"
    ):
        RuntimeConfig(launcher="inline", world_size=2)
    with pytest.raises(ConflictError, match="backend=mpi needs ranks that mpirun starts and launcher=spawn does not"):
        RuntimeConfig(launcher="spawn", backend="mpi")


def test_a_new_module_is_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srun.py").write_text('BACKENDS = ("mpi",)\nLAUNCHER = Srun()\n')
    (tmp_path / "helper.py").write_text("POSITION = 1\n")
    monkeypatch.setattr(launcher_names, "FOLDER", tmp_path)
    facts = launcher_names.launcher_facts.__wrapped__()
    assert list(facts) == ["ray", "srun"]
    assert facts["srun"].backends == ("mpi",)
