from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from dmls_ray.cluster import joining
from dmls_ray.cluster.connect import cluster_at
from dmls_ray.cluster.joining import (
    MISSING,
    check_address,
    cluster_of_this_machine,
    differing,
    keep_token_private,
    make_look,
)
from dmls_ray.util.errors import ClusterError
from tests.conftest import call, without_ray

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
    monkeypatch.setattr(joining.psutil, "process_iter", lambda names: [node])


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
    code = f"from dmls_ray.cluster.joining import check_address; check_address({address!r})"
    done = call([sys.executable, "-c", code], env=without_ray(RAY_AUTH_MODE="token", HOME=str(tmp_path)))
    assert "requires a token, and this machine sends none or another one" in done.stderr


def test_a_machine_is_part_of_a_cluster_by_its_address() -> None:
    def node(address: str) -> Any:
        return SimpleNamespace(node_manager_address=address, node_id=b"\x01")

    assert joining._has_node_here([node("127.0.0.1")])
    assert not joining._has_node_here([node("203.0.113.1")])


ASK = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
from dmls_ray.cluster.joining import check_address
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
    done = call([sys.executable, "-c", ASK], env=without_ray(HOME=str(tmp_path), **variables))
    assert done.stdout.strip() == expected, done.stderr


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def written(file: Path) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text("secret")
    file.chmod(0o644)
    return file


def mode_of(file: Path) -> int:
    return file.stat().st_mode & 0o777


def test_a_started_cluster_gets_a_token_that_only_its_owner_can_read(home: Path) -> None:
    keep_token_private(make=True)
    file = home / ".ray" / "auth_token"
    assert mode_of(file) == 0o600
    assert len(file.read_text()) == 64
    before = file.read_text()
    keep_token_private(make=True)
    assert file.read_text() == before


@pytest.mark.parametrize("make", [True, False])
@pytest.mark.parametrize("name", [".ray/auth_token", "named by a variable"])
def test_a_token_that_others_can_read_is_made_private(
    home: Path, name: str, make: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    file = written(home / name)
    if name != ".ray/auth_token":
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    keep_token_private(make=make)
    assert (mode_of(file), file.read_text()) == (0o600, "secret")


def test_one_that_cannot_be_made_private_is_refused_with_the_cure(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    file = written(home / ".ray" / "auth_token")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(ClusterError, match=f"{file} cannot be kept private.*name a file that you own"):
        keep_token_private(make=False)


def test_nothing_is_written_where_ray_is_configured_without_a_token(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    keep_token_private(make=True)
    assert not (home / ".ray").exists()


HERE = {"torch": "2.15.0", "numpy": "2.1", "torchvision": MISSING, "dmls_ray": "abc"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"torchvision": "0.30"}, ""),
        ({"dmls_ray": MISSING}, "dmls_ray is missing (here abc)"),
        ({"torch": MISSING, "numpy": "1.26"}, "torch is missing (here 2.15.0), numpy 1.26 (here 2.1)"),
    ],
)
def test_what_a_machine_lacks_or_has_in_another_version(changes: dict[str, str], expected: str) -> None:
    assert differing({**HERE, **changes}, HERE) == expected


def test_a_machine_is_looked_at_where_dmls_ray_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "look").write_bytes(cloudpickle.dumps(make_look()))
    script = "import pickle, sys; sys.path[:] = [p for p in sys.path if p]; sys.meta_path.insert(0, type('No', (), {"
    script += "'find_spec': staticmethod(lambda name, *_: (_ for _ in ()).throw(ImportError(name)) if name.startswith("
    script += "'dmls_ray.') else None)})()); print(sorted(pickle.load(open(sys.argv[1], 'rb'))()[0]))"
    done = call([sys.executable, "-c", script, str(tmp_path / "look")], Path("/"))
    assert "'dmls_ray'" in done.stdout, done.stderr
