from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dmls_ray.cluster import addresses
from dmls_ray.cluster.addresses import check_address, cluster_of_this_machine
from dmls_ray.cluster.connect import cluster_at
from dmls_ray.util.errors import ClusterError

ANOTHER_USER = 65534


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which `ray start` keeps its address; it does not exist yet."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "ray").mkdir()
    return tmp_path / "ray" / "ray_current_cluster"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture
def address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def run_node(monkeypatch: pytest.MonkeyPatch, address: str, *, user: int) -> None:
    node = SimpleNamespace(
        info={"name": "raylet", "cmdline": ["raylet", f"--gcs-address={address}"], "uids": SimpleNamespace(real=user)}
    )
    monkeypatch.setattr(addresses.psutil, "process_iter", lambda names: [node])


def test_the_cluster_of_this_user_is_joined_while_it_runs(
    mark: Path, listener: socket.socket, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_node(monkeypatch, address, user=os.getuid())
    with pytest.raises(ClusterError, match="auto finds no cluster on this machine"):
        cluster_at("auto")
    mark.write_text(f"{address}\n")
    assert cluster_of_this_machine() == cluster_at(None) == cluster_at("auto") == address
    assert cluster_at("local") is None
    listener.close()
    assert cluster_of_this_machine() is None, "the file of a cluster that is gone"


def test_the_flag_comes_before_the_variable_and_the_variable_before_the_cluster_of_this_machine(
    mark: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_node(monkeypatch, address, user=os.getuid())
    mark.write_text(address)
    monkeypatch.setenv("RAY_ADDRESS", "ray-head:6379")
    assert cluster_at(None) == "ray-head:6379"
    assert cluster_at("10.0.0.1:6379") == "10.0.0.1:6379"


def test_a_cluster_that_another_user_names_is_neither_joined_nor_contacted(
    mark: Path, listener: socket.socket, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark.write_text(address)
    assert cluster_at(None) is None, "no node of it runs here"
    run_node(monkeypatch, address, user=ANOTHER_USER)
    assert cluster_at(None) is None
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_pipe_in_place_of_the_file_is_not_read(mark: Path) -> None:
    os.mkfifo(mark)
    assert cluster_of_this_machine() is None


def objection(address: str) -> str:
    with pytest.raises(ClusterError) as caught:
        check_address(address)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("address", ["ray://head:10001", "http://head:8265", "head", "head:", "ftp://head:21"])
def test_an_address_of_another_kind_is_refused_with_its_purpose(address: str) -> None:
    assert re.search("is not HOST:PORT of the head of a cluster.*ray job submit", objection(address))


def test_an_address_without_a_listener_is_reported_at_once(listener: socket.socket, address: str) -> None:
    listener.close()
    assert "cannot be reached" in objection(address)


def test_a_missing_token_is_reported_before_any_request(
    listener: socket.socket, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = f"from dmls_ray.cluster.addresses import check_address; check_address({address!r})"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_AUTH_MODE": "token", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "requires a token, and gets none or another one" in done.stderr


def test_a_machine_is_part_of_a_cluster_by_its_address() -> None:
    def node(address: str) -> Any:
        return SimpleNamespace(node_manager_address=address, node_id=b"\x01")

    assert addresses._has_node_here([node("127.0.0.1")])
    assert not addresses._has_node_here([node("203.0.113.1")])


ASK = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
from dmls_ray.cluster.addresses import check_address
from dmls_ray.util.errors import ClusterError

sent = []

class Cluster(grpc.GenericRpcHandler):
    def service(self, details):
        sent.append(str(dict(details.invocation_metadata)))
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token, please")
        )

server = grpc.server(ThreadPoolExecutor(2), handlers=(Cluster(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
try:
    check_address(f"127.0.0.1:{port}")
except ClusterError:
    print(["SECRET" in metadata for metadata in sent])
"""


@pytest.mark.parametrize(("variables", "expected"), [({}, "[False]"), ({"RAY_AUTH_MODE": "token"}, "[True]")])
def test_a_token_is_sent_only_if_the_user_says_so(tmp_path: Path, variables: dict[str, str], expected: str) -> None:
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("SECRET-0123456789abcdef0123456789abcdef")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**environment, **variables, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == expected, done.stderr
