from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dmls_ray.cluster.connect import cluster_at, connect
from dmls_ray.util.errors import ClusterError


def test_a_running_cluster_is_found_by_flag_variable_or_its_own_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert cluster_at(None) is None
    (tmp_path / "ray").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as there:
        address = f"127.0.0.1:{there.getsockname()[1]}"
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        assert cluster_at(None) == address
    assert cluster_at(None) is None, "the mark of a cluster that is gone"
    monkeypatch.setenv("RAY_ADDRESS", "ray-head:6379")
    assert cluster_at(None) == "ray-head:6379"
    assert cluster_at("10.0.0.1:6379") == "10.0.0.1:6379"


def test_an_address_of_the_environment_is_not_blamed_on_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    address = cluster_at(None)
    with pytest.raises(ClusterError, match="^RAY_ADDRESS=nonsense is no address"):
        connect(address, dashboard=False, verbose=False)
