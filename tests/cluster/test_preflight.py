from __future__ import annotations

import re
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from dmls_ray.cluster import preflight as reach
from dmls_ray.cluster.preflight import check_address
from dmls_ray.util.errors import ClusterError


def objection(address: str) -> str:
    with pytest.raises(ClusterError) as caught:
        check_address(address, started_here=False)
    told = str(caught.value)
    assert "\n" not in told
    return told


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ray://head:10001", "is of Ray Client.*ray job submit"),
        ("http://head:8265", "takes jobs: ray job submit --address http://head:8265"),
        ("head", "is no address of a cluster; give HOST:PORT"),
        ("head:", "is no address of a cluster"),
        ("ftp://head:21", "is no address of a cluster"),
    ],
)
def test_an_address_of_another_kind_is_told_what_it_is_for(address: str, told: str) -> None:
    assert re.search(told, objection(address))


def test_an_address_at_which_nothing_answers_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
    assert "cannot be reached" in objection(f"127.0.0.1:{port}")


def test_a_token_is_missed_before_anybody_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    with socket.create_server(("127.0.0.1", 0)) as there:
        told = objection(f"127.0.0.1:{there.getsockname()[1]}")
    assert f"there is no token in {tmp_path / 'none'}; put the cluster's there, with chmod 600" in told


def test_a_machine_is_part_of_a_cluster_by_its_address() -> None:
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    def node(address: str, state: int) -> Any:
        return SimpleNamespace(state=state, node_manager_address=address, node_id=b"\x01")

    assert reach._is_here([node("127.0.0.1", GcsNodeInfo.ALIVE)])
    assert not reach._is_here([node("127.0.0.1", GcsNodeInfo.DEAD), node("203.0.113.1", GcsNodeInfo.ALIVE)])
