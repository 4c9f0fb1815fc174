from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmls_ray.cluster import current_cluster as module
from dmls_ray.cluster.address_check import raylet_commands
from dmls_ray.cluster.connect import cluster_at
from dmls_ray.cluster.current_cluster import current_cluster

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


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_the_cluster_of_this_user_is_found_while_it_runs(mark: Path, listener: socket.socket) -> None:
    notes: list[str] = []
    assert current_cluster(notes.append) is None
    mark.write_text(f"{address_of(listener)}\n")
    assert current_cluster(notes.append) == address_of(listener)
    listener.close()
    assert current_cluster(notes.append) is None, "the file of a cluster that is gone"
    assert notes == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Ray does not read TMPDIR")
def test_the_cluster_is_found_in_the_folder_for_temporary_files_that_ray_start_has_used(
    mark: Path, listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_TMPDIR")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    mark.write_text(address_of(listener))
    assert current_cluster(print) == address_of(listener)


def test_a_cluster_that_another_user_names_is_neither_joined_nor_contacted(
    mark: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark.write_text(address_of(listener))
    monkeypatch.setattr(module, "_trusted_users", lambda: {ANOTHER_USER})
    notes: list[str] = []
    assert cluster_at(None, notes.append) is None
    (note,) = notes
    assert f"{mark} names is not joined: the file belongs to user " in note
    assert "--address HOST:PORT joins a cluster; --address local hides this line" in note
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_the_owner_of_the_file_decides(mark: Path, listener: socket.socket) -> None:
    mark.write_text(address_of(listener))
    os.chown(mark, ANOTHER_USER, -1)
    assert current_cluster(lambda note: None) is None
    os.chown(mark, 0, -1)
    assert current_cluster(lambda note: None) == address_of(listener)


def test_a_port_that_another_user_has_taken_since_is_not_joined(
    mark: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark.write_text(address_of(listener))
    assert set(module._listeners(listener.getsockname()[1])) == {os.getuid()}
    monkeypatch.setattr(module, "_listeners", lambda port: iter([0, ANOTHER_USER]))
    notes: list[str] = []
    assert current_cluster(notes.append) is None
    assert f"the process that listens at {address_of(listener)} belongs to user " in notes[0]


@pytest.mark.skipif(sys.platform != "linux", reason="a process renames itself with prctl")
def test_an_address_that_another_machine_may_have_now_is_joined_only_if_a_node_of_its_cluster_runs_here(
    mark: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = address_of(listener)
    mark.write_text(address)
    monkeypatch.setattr(module, "_own_addresses", lambda: {"192.0.2.1"})
    notes: list[str] = []
    assert current_cluster(notes.append) is None
    assert "is not joined: no node of it runs on this machine" in notes[0]
    # A node of this user with that head; a process may give itself any name and arguments.
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'raylet', 0, 0, 0); print(flush=True); time.sleep(100)"
    words = [sys.executable, "-c", code, f"--gcs-address={address}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        node.stdout.readline()
        assert current_cluster(notes.append) == address
        monkeypatch.setattr(module, "_trusted_users", lambda: {os.getuid(), ANOTHER_USER})
        monkeypatch.setattr(module, "raylet_commands", lambda users: raylet_commands({ANOTHER_USER}))
        assert current_cluster(notes.append) is None, "a node of another user"
        node.kill()


def test_a_pipe_a_link_or_a_folder_in_place_of_the_file_is_not_read(mark: Path, listener: socket.socket) -> None:
    elsewhere = mark.with_name("elsewhere")
    elsewhere.write_text(address_of(listener))
    for make, expected in (
        (lambda: os.mkfifo(mark), "it is no regular file"),
        (lambda: mark.symlink_to(elsewhere), "the file cannot be read"),
        (mark.mkdir, "it is no regular file"),
    ):
        make()
        notes: list[str] = []
        assert current_cluster(notes.append) is None
        assert expected in notes[0]
        mark.rmdir() if mark.is_dir() and not mark.is_symlink() else mark.unlink()
