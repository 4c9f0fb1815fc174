from __future__ import annotations

import re
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from dmls_ray.cluster import address_check
from dmls_ray.cluster.address_check import check_address
from dmls_ray.util.errors import ClusterError


def objection(address: str) -> str:
    with pytest.raises(ClusterError) as caught:
        check_address(address, started_here=False)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("ray://head:10001", "is an address of Ray Client.*ray job submit"),
        ("http://head:8265", "accepts jobs: ray job submit --address http://head:8265"),
        ("head", "is no address of a cluster. Give HOST:PORT"),
        ("head:", "is no address of a cluster"),
        ("ftp://head:21", "is no address of a cluster"),
    ],
)
def test_an_address_of_another_kind_is_refused_with_its_purpose(address: str, expected: str) -> None:
    assert re.search(expected, objection(address))


def test_an_address_without_a_listener_is_reported_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "cannot be reached" in objection(f"127.0.0.1:{port}")


def test_a_missing_token_is_reported_before_any_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        message = objection(f"127.0.0.1:{listener.getsockname()[1]}")
    assert f"{tmp_path / 'none'} has no token. Put the token of the cluster there, with chmod 600" in message


def test_a_machine_is_part_of_a_cluster_by_its_address() -> None:
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    def node(address: str, state: int) -> Any:
        return SimpleNamespace(state=state, node_manager_address=address, node_id=b"\x01")

    elsewhere = node("203.0.113.1", GcsNodeInfo.ALIVE)
    assert address_check._is_on_this_machine([node("127.0.0.1", GcsNodeInfo.ALIVE)])
    assert not address_check._is_on_this_machine([node("127.0.0.1", GcsNodeInfo.DEAD), elsewhere])
