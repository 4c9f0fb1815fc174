"""A cluster on this machine: the folder of its files, and what happens where it does not start in time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from dmls_ray.cluster.local_cluster import start_cluster
from dmls_ray.util.errors import ClusterError, ClusterLostError
from tests.conftest import SMALL, Command

LONG = "a" * 90


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], list[Path]]:
    """Function that lets each start of Ray fail, and returns the folders that were then to be used."""
    import ray

    def make(error: Exception) -> list[Path]:
        folders: list[Path] = []

        def init(*, _temp_dir: str, **_: Any) -> None:
            folders.append(Path(_temp_dir))
            raise error

        monkeypatch.setattr(ray, "init", init)
        return folders

    return make


def test_a_machine_too_busy_to_start_ray_in_time_is_another_start_of_the_sweep(
    fail: Callable[[Exception], list[Path]],
) -> None:
    folders = fail(Exception("The current node timed out during startup. This could happen."))
    with pytest.raises(ClusterLostError, match="timed out during startup"):
        start_cluster()
    assert len(folders) == 1


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "/nobody/ray"), ValueError("num_cpus")])
def test_a_start_that_fails_for_another_reason_is_not_repeated(
    fail: Callable[[Exception], list[Path]], error: Exception
) -> None:
    folders = fail(error)
    with pytest.raises(ClusterError, match=r"^Ray could not be started on this machine \(.*(Permission|num_cpus)"):
        start_cluster()
    assert len(folders) == 1


@pytest.mark.parametrize(
    ("variables", "parent"),
    [
        ({}, "/tmp"),
        ({"TMPDIR": "/var/tmp"}, "/var/tmp"),
        ({"TMPDIR": f"/tmp/{LONG}"}, "/tmp"),
        ({"TMPDIR": f"/tmp/{LONG}", "RAY_TMPDIR": "/var/tmp"}, "/var/tmp"),
    ],
)
def test_ray_gets_a_private_folder_with_a_path_that_is_short_enough_for_its_sockets(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], parent: str
) -> None:
    import ray

    for name in ("TMPDIR", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", variables.get("TMPDIR", "/tmp"))
    monkeypatch.setattr(ray, "init", lambda **_: None)
    folder = start_cluster().folder
    assert folder.path.parent == Path(parent)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()


def test_a_folder_that_cannot_be_made_is_reported_with_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "file" / "below"))
    with pytest.raises(ClusterError, match="name a folder in RAY_TMPDIR"):
        start_cluster()


SLOW_AGENTS = """
import os, sys, time
from pathlib import Path
slept = Path(os.environ["SLEPT"])
if "dashboard/agent.py" in " ".join(sys.orig_argv) and not slept.exists():
    slept.touch()
    time.sleep(40)
"""
"""A module that Python loads at its start: Ray's first process of that name takes as long as on a busy machine."""


@pytest.mark.slow
def test_a_sweep_starts_ray_again_where_it_was_too_slow_and_in_a_short_folder_where_the_usual_is_too_long(
    sweep_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / LONG).mkdir()
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "sitecustomize.py").write_text(SLOW_AGENTS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "start"), prepend=os.pathsep)
    monkeypatch.setenv("SLEPT", str(tmp_path / "slept"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / LONG))
    flags = ("--dataset", SMALL, "--batch-per-rank", "8", "--world-size", "1", "--device", "cpu", "--epochs", "1",
             "--repeats", "1", "--loader", "resident", "dataloader", "--address", "local")  # fmt: skip
    done = sweep_command("grid", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.startswith("Ray could not be started in time")
    assert list((tmp_path / LONG).glob("dmls_ray-*")) == []
    assert not [word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or []
                if "dmls_ray-ray-" in word]  # fmt: skip
