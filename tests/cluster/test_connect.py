"""A sweep's Ray: the folder of its files, a start that fails, and what it prints."""

from __future__ import annotations

import importlib
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dmls_ray.cluster import connect as connect_module
from dmls_ray.cluster.connect import RaySession
from dmls_ray.cluster.local import start_cluster
from dmls_ray.util.errors import ClusterError, ClusterLostError


@pytest.mark.parametrize("address", [None, "127.0.0.1:6379"])
def test_ray_prints_about_dead_workers_and_tune_logs_only_with_verbose(
    address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    def init(**_: Any) -> None:
        """Start nothing."""

    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given, so that none is made")
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(importlib, "import_module", lambda name: None)
    for name in ("join_cluster", "prestart_autoscaling_coordinator", "cluster_resources"):
        monkeypatch.setattr(connect_module, name, lambda *_, **__: None)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="127.0.0.1:6379"))
    tune = logging.getLogger("ray.tune.analysis.experiment_analysis")
    for verbose in (False, True):
        with RaySession(address, dashboard=False, verbose=verbose).connected():
            assert ray._private.worker._worker_logs_enabled is verbose
            assert tune.isEnabledFor(logging.WARNING) is verbose
        assert ray._private.worker._worker_logs_enabled, "other uses of Ray in this process print as before"
        is_kept = verbose and address is None
        assert bool(list(tmp_path.iterdir())) is is_kept, "files of a cluster that was started here are removed"


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
    cluster = start_cluster()
    assert cluster.folder.path.parent == Path(parent)
    assert cluster.folder.path.stat().st_mode & 0o777 == 0o700
    cluster.remove()


def test_a_folder_that_cannot_be_made_is_reported_with_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "file" / "below"))
    with pytest.raises(ClusterError, match="name a folder in RAY_TMPDIR"):
        start_cluster()
