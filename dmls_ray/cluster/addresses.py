"""Addresses of clusters: the one of this machine, and the check of an address before Ray connects.

Ray itself would try for up to a minute, and print many lines.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import psutil

from dmls_ray.cluster.auth import MODE
from dmls_ray.cluster.compat import ask_head
from dmls_ray.util.errors import ClusterError

_ANSWER_TIMEOUT_S = 5.0
"""How long a cluster may take to answer."""

_AS_JOB = "ray job submit --address http://HEAD:8265 --working-dir . -- python SCRIPT"


def cluster_of_this_machine() -> str | None:
    """Address of the cluster of which this user, or root, runs a node here by `ray start`; None without one.

    Any user may write the file in which Ray keeps the address, so a node of a trusted user must have the same address:
    a sweep that joined another cluster would run the code of its owner.
    """
    # `ray start` writes this file, and `ray stop` removes it; a machine that went down does not.
    usual = os.environ.get("TMPDIR", "/tmp") if sys.platform == "linux" else "/tmp"
    path = Path(os.environ.get("RAY_TMPDIR", usual)) / "ray" / "ray_current_cluster"
    try:
        if not path.is_file():  # to read a pipe would wait for its writer
            return None
        address = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    flag = f"--gcs-address={address}"
    is_trusted = any(flag in words for words in _raylet_commands({os.getuid(), 0}))
    return address if is_trusted and no_answer(address) is None else None


def no_answer(address: str) -> str | None:
    """Why nothing listens at HOST:PORT; None if something does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_TIMEOUT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        return str(error)
    return None


def check_address(address: str) -> None:
    """Check that this process can join the cluster at HOST:PORT.

    Raises:
        ClusterError: it cannot.
    """
    import grpc
    from ray.exceptions import AuthenticationError

    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        # Through Ray Client (ray://), Ray Tune and the listener to the events of runs would run on the cluster.
        raise ClusterError(
            f"Address {address} (--address or RAY_ADDRESS) is not HOST:PORT of the head of a cluster. The port is 6379 "
            f"by default. From another machine, submit a job: {_AS_JOB}."
        )
    if reason := no_answer(address):
        raise ClusterError(
            f"Address {address} cannot be reached ({reason}). Start a cluster with ray start --head, or leave "
            "--address and RAY_ADDRESS out to use this machine alone."
        )
    try:
        nodes = ask_head(address, _ANSWER_TIMEOUT_S)
    except (AuthenticationError, grpc.RpcError) as error:
        if isinstance(error, AuthenticationError) or error.code() == grpc.StatusCode.UNAUTHENTICATED:
            raise ClusterError(
                f"The cluster at {address} requires a token, and gets none or another one. Export {MODE}=token, and "
                "put what ray get-auth-token prints on the cluster into ~/.ray/auth_token, with chmod 600."
            ) from error
        raise ClusterError(
            f"Address {address} is not the head of a Ray cluster ({error.code().name}). By default its port is 6379; "
            "8265 is the dashboard, and 10001 is Ray Client."
        ) from error
    if not _has_node_here(nodes):
        raise ClusterError(
            f"This machine is not part of the cluster at {address}, and a sweep must start on one of its machines. Run "
            f"ray start --address={address} here (with --num-cpus=0 no ranks run here), or submit a job from anywhere: "
            f"{_AS_JOB}."
        )


def _has_node_here(nodes: list[Any]) -> bool:
    """Whether one of the nodes is on this machine, by its address or by its process."""
    local = {item.address for items in psutil.net_if_addrs().values() for item in items}
    if any(node.node_manager_address in local for node in nodes):
        return True
    flags = {f"--node_id={node.node_id.hex()}" for node in nodes}
    return any(flags.intersection(words) for words in _raylet_commands())


def _raylet_commands(users: Collection[int] | None = None) -> list[list[str]]:
    """Command line of each of Ray's node processes here; of these users, by default of all."""
    found = []
    for process in psutil.process_iter(["name", "cmdline", "uids"]):
        uids, words = process.info["uids"], process.info["cmdline"]
        if process.info["name"] == "raylet" and words and uids and (users is None or uids.real in users):
            found.append(words)
    return found
