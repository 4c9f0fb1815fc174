from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
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
        ("ray://head:10001", "is no address of a cluster.*ray job submit"),
        ("http://head:8265", "is no address of a cluster.*ray job submit"),
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
    assert "requires a token, and gets none or another one" in message


def test_a_machine_is_part_of_a_cluster_by_its_address() -> None:
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    def node(address: str, state: int) -> Any:
        return SimpleNamespace(state=state, node_manager_address=address, node_id=b"\x01")

    elsewhere = node("203.0.113.1", GcsNodeInfo.ALIVE)
    assert address_check._is_on_this_machine([node("127.0.0.1", GcsNodeInfo.ALIVE)])
    assert not address_check._is_on_this_machine([node("127.0.0.1", GcsNodeInfo.DEAD), elsewhere])


ASK = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
from dmls_ray.cluster.address_check import check_address
from dmls_ray.util.errors import ClusterError

sent = []

class Cluster(grpc.GenericRpcHandler):
    def service(self, details):
        sent.append(dict(details.invocation_metadata))
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token, please")
        )

server = grpc.server(ThreadPoolExecutor(2), handlers=(Cluster(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
for started_here in (False, True):
    sent.clear()
    try:
        check_address(f"127.0.0.1:{port}", started_here=started_here)
    except ClusterError:
        print(any("SECRET" in str(metadata) for metadata in sent), len(sent))
"""


def test_a_token_is_sent_only_to_a_cluster_of_this_machine_unless_the_user_says_so(tmp_path: Path) -> None:
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("SECRET-0123456789abcdef0123456789abcdef")
    token.chmod(0o600)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["False 1", "True 2"], done.stderr
