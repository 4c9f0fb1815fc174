from __future__ import annotations

import importlib
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dmls_ray.cluster import connect as connect_module
from dmls_ray.cluster.connect import RaySession


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
            assert tune.isEnabledFor(logging.ERROR)
        assert ray._private.worker._worker_logs_enabled, "other uses of Ray in this process print as before"
        is_kept = verbose and address is None
        assert bool(list(tmp_path.iterdir())) is is_kept, "files of a cluster that was started here are removed"
