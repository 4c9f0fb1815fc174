"""Check an address before Ray connects, and explain a failure in one line.

Ray itself tries for up to a minute and prints many lines.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from typing import Any

import psutil

from dmls_ray.cluster.auth import MODE, has_token, keep_token_private
from dmls_ray.cluster.compat import alive_nodes, ask_head, read_auth_mode
from dmls_ray.util.errors import ClusterError

_ANSWER_TIMEOUT_S = 5.0
"""Seconds that a cluster has for its answer."""

_AS_JOB = "ray job submit --address http://HEAD:8265 --working-dir . -- python SCRIPT"


def no_answer(address: str) -> str | None:
    """Why nothing listens at HOST:PORT; None if something does, or if the address has another form."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        return None
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_TIMEOUT_S).close()
    except OSError as error:
        return str(error)
    return None


def check_address(address: str, *, started_here: bool) -> None:
    """Check that this process can join the cluster at an address.

    Args:
        address: HOST:PORT of its head.
        started_here: whether the cluster was started on this machine, so that the token of this machine fits.

    Raises:
        ClusterError: it cannot; the message gives the reason and the way out.
    """
    _check_form(address)
    if reason := no_answer(address):
        raise ClusterError(
            f"--address {address} cannot be reached ({reason}). Start a cluster with ray start --head, or leave "
            "--address and RAY_ADDRESS out to use this machine alone."
        )
    if os.environ.get(MODE) == "token" and not has_token():
        raise _no_token(address)
    import grpc

    try:
        nodes = _ask(address, started_here=started_here)
    except ImportError:
        return  # Another version of Ray keeps these names elsewhere. Ray itself then reports the failure, later.
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            raise _no_token(address) from error
        raise ClusterError(
            f"--address {address} is not the head of a Ray cluster ({error.code().name}). By default its port is "
            "6379; 8265 is the dashboard, and 10001 is Ray Client."
        ) from error
    if not _is_on_this_machine(nodes):
        raise ClusterError(
            f"This machine is not part of the cluster at --address {address}, and a sweep must start on one of its "
            f"machines. Run ray start --address={address} here (with --num-cpus=0 no ranks run here), or submit a job "
            f"from anywhere: {_AS_JOB}."
        )


def _no_token(address: str) -> ClusterError:
    return ClusterError(
        f"The cluster at --address {address} requires a token, and gets none or another one. Export {MODE}=token, and "
        "put what ray get-auth-token prints on the cluster into ~/.ray/auth_token, with chmod 600."
    )


def _check_form(address: str) -> None:
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        # Through Ray Client (ray://), Ray Tune and the listener to the events of runs would run on the cluster.
        raise ClusterError(
            f"--address {address} is no address of a cluster. Give HOST:PORT of its head (by default with port "
            "6379), auto for a cluster that runs on this machine, or local to start a new one; from elsewhere, submit "
            f"a job: {_AS_JOB}."
        )


def _ask(address: str, *, started_here: bool) -> list[Any]:
    """The cluster's nodes; Ray itself would try for a minute.

    Raises:
        grpc.RpcError: the cluster requires another token, or the address is not of a cluster.
    """
    import grpc

    try:
        return ask_head(address, _ANSWER_TIMEOUT_S)
    except grpc.RpcError as error:
        is_refused = error.code() == grpc.StatusCode.UNAUTHENTICATED
        if not (is_refused and started_here and MODE not in os.environ and has_token()):
            raise
    # Send the token from now on, as Ray does for a cluster that it finds on this machine.
    os.environ[MODE] = "token"
    keep_token_private()
    read_auth_mode()
    return ask_head(address, _ANSWER_TIMEOUT_S)


def _is_on_this_machine(nodes: list[Any]) -> bool:
    """Whether one of the nodes is on this machine, by its address or by its process."""
    alive = alive_nodes(nodes)
    local_addresses = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    if any(node.node_manager_address in local_addresses for node in alive):
        return True
    flags = {f"--node_id={node.node_id.hex()}" for node in alive}
    return any(flags & set(words) for words in raylet_commands())


def raylet_commands(users: Collection[int] | None = None) -> list[list[str]]:
    """The command line of each of Ray's node processes on this machine; of these users, or of all."""
    found = (process.info for process in psutil.process_iter(["name", "cmdline", "uids"]))
    raylets = [info for info in found if info["name"] == "raylet" and info["uids"]]
    return [info["cmdline"] or [] for info in raylets if users is None or info["uids"].real in users]
