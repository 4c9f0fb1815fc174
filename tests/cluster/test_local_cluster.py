"""A cluster on this machine: the folder of its files, and what happens where it does not start in time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from dmls_ray.cluster import local_cluster
from dmls_ray.cluster.local_cluster import start_cluster, temporary_folder_of_ray
from dmls_ray.util import socket_paths
from dmls_ray.util.errors import ClusterError, ClusterLostError
from tests.conftest import SMALL, Command

LONG = "a" * 90


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], list[Path]]:
    """Function that lets each start of Ray fail, and returns the folders that were then to be used."""
    import ray

    def make(error: Exception) -> list[Path]:
        folders: list[Path] = []

        def init(*, _temp_dir: str | None = None, **_: Any) -> None:
            folders.append(Path(_temp_dir) if _temp_dir else temporary_folder_of_ray()[1] / "ray")
            raise error

        monkeypatch.setattr(ray, "init", init)
        return folders

    return make


def test_a_machine_too_busy_to_start_ray_in_time_is_another_start_of_the_sweep(
    fail: Callable[[Exception], list[Path]],
) -> None:
    folders = fail(Exception("The current node timed out during startup. This could happen."))
    with pytest.raises(ClusterLostError, match="timed out during startup"):
        start_cluster(keep_files=False)
    assert len(folders) == 1


def test_ray_is_told_how_many_gpus_pytorch_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    given: dict[str, Any] = {}

    def init(**options: Any) -> None:
        given.update(options)
        raise ValueError("no start")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(local_cluster, "usable_gpus", lambda: 3)
    with pytest.raises(ClusterError):
        start_cluster(keep_files=False)
    assert given["num_gpus"] == 3


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "/nobody/ray"), ValueError("num_cpus")])
def test_a_start_that_fails_for_another_reason_is_not_repeated(
    fail: Callable[[Exception], list[Path]], error: Exception
) -> None:
    folders = fail(error)
    with pytest.raises(ClusterError, match=r"^Ray could not be started on this machine \(.*(Permission|num_cpus)"):
        start_cluster(keep_files=False)
    assert len(folders) == 1


@pytest.mark.parametrize(
    ("variables", "is_own"),
    [({}, False), ({"TMPDIR": "/tmp"}, False), ({"TMPDIR": f"/tmp/{LONG}"}, True),
     ({"TMPDIR": f"/tmp/{'ü' * 25}"}, True), ({"TMPDIR": f"/tmp/{LONG}", "RAY_TMPDIR": "/tmp"}, False)],
)  # fmt: skip
def test_ray_gets_a_short_folder_where_the_paths_of_its_sockets_would_be_too_long(
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[Exception], list[Path]],
    variables: dict[str, str],
    is_own: bool,
) -> None:
    for name in ("TMPDIR", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    folders = fail(ValueError("no start"))
    with pytest.raises(ClusterError):
        start_cluster(keep_files=False)
    (folder,) = folders
    if not is_own:
        assert folder == Path("/tmp/ray")
        return
    assert folder.parent == Path("/tmp")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()


def test_a_folder_for_ray_that_is_too_long_is_refused_with_the_variable_and_the_room(
    monkeypatch: pytest.MonkeyPatch, fail: Callable[[Exception], list[Path]]
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", f"/tmp/{LONG}")
    folders = fail(ValueError("no start"))
    message = r"^RAY_TMPDIR=/tmp/a+ has 95 bytes, .*; name a folder of (\d+) bytes or less in RAY_TMPDIR"
    with pytest.raises(ClusterError, match=message) as refused:
        start_cluster(keep_files=False)
    room = int(str(refused.value).rpartition("folder of ")[2].partition(" ")[0])
    for length, start in ((room, "Ray could not be started"), (room + 1, "RAY_TMPDIR=")):
        monkeypatch.setenv("RAY_TMPDIR", "/" + "a" * (length - 1))
        with pytest.raises(ClusterError, match=f"^{start}"):
            start_cluster(keep_files=False)
    assert len(folders) == 1


def test_where_no_short_folder_can_be_written_the_line_names_both_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", f"/tmp/{LONG}")
    monkeypatch.setattr(socket_paths, "_SHORT_FOLDERS", ("/nowhere",))
    with pytest.raises(ClusterError, match=r"^TMPDIR=/tmp/a+ has 95 bytes, .* in RAY_TMPDIR"):
        start_cluster(keep_files=False)


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
    before = set(Path("/tmp").glob("dmls_ray-ray-*"))
    flags = ("--dataset", SMALL, "--batch-per-rank", "8", "--world-size", "1", "--device", "cpu", "--epochs", "1",
             "--repeats", "1", "--loader", "resident", "dataloader", "--address", "local")  # fmt: skip
    done = sweep_command("grid", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.startswith("Ray could not be started in time")
    assert set(Path("/tmp").glob("dmls_ray-ray-*")) == before
    assert list((tmp_path / LONG).glob("dmls_ray-*")) == []
    assert not [word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or []
                if "dmls_ray-ray-" in word]  # fmt: skip
