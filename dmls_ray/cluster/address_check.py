"""Check an address before Ray connects, and explain a failure in one line.

Ray itself tries for up to a minute and prints many lines.
"""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Collection
from typing import Any

import psutil

from dmls_ray.cluster.auth import MODE, has_token, keep_token_private, token_place
from dmls_ray.cluster.compat import alive_nodes, ask_head, check_versions, read_auth_mode
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


def head_answers(address: str, timeout: float) -> bool:
    """Whether the head of a cluster answers a question; the kernel accepts connections also for one that is stopped.

    Args:
        address: HOST:PORT of the head.
        timeout: seconds that it has.
    """
    import grpc

    try:
        ask_head(address, timeout)
    except ImportError:
        return no_answer(address) is None
    except grpc.RpcError as error:
        # Any other refusal is an answer.
        return error.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
    return True


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
        raise ClusterError(
            f"{MODE}=token, but {token_place()} has no token. Put the token of the cluster there, with chmod 600 "
            "(ray get-auth-token on the cluster prints it)."
        )
    try:
        nodes, versions = _ask(address, started_here=started_here)
    except ImportError:
        return  # Another version of Ray keeps these names elsewhere. Ray itself then reports the failure, later.
    if versions is not None:
        try:
            check_versions(versions, address)
        except RuntimeError as error:
            raise ClusterError(_version_message(address, versions)) from error
    if not _is_on_this_machine(nodes):
        raise ClusterError(
            f"This machine is not part of the cluster at --address {address}, and a sweep must start on one of its "
            f"machines. Run ray start --address={address} here (with --num-cpus=0 no ranks run here), or submit a job "
            f"from anywhere: {_AS_JOB}."
        )


def _check_form(address: str) -> None:
    scheme, separator, _ = address.partition("://")
    if separator and scheme == "ray":
        # Ray Tune, and the listener to the events of runs, would then run on the cluster and not in this process.
        raise ClusterError(
            f"--address {address} is an address of Ray Client, through which a sweep receives no events of its runs. "
            f"Run the sweep on the cluster: {_AS_JOB}."
        )
    if separator and scheme in ("http", "https"):
        raise ClusterError(
            f"--address {address} is the address of Ray's dashboard, which accepts jobs: ray job submit --address "
            f"{address} --working-dir . -- python SCRIPT"
        )
    host, _, port = address.rpartition(":")
    if separator or not host or not port.isdecimal():
        raise ClusterError(
            f"--address {address} is no address of a cluster. Give HOST:PORT of its head (by default with port "
            "6379), auto for a cluster that runs on this machine, or local to start a new one."
        )


def _ask(address: str, *, started_here: bool) -> tuple[list[Any], dict[str, Any] | None]:
    """The cluster's nodes, and its versions if it reports them.

    Raises:
        ClusterError: the cluster requires another token, or the address is not of a cluster.
    """
    import grpc

    try:
        nodes, metadata = ask_head(address, _ANSWER_TIMEOUT_S)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAUTHENTICATED:
            raise ClusterError(
                f"--address {address} is not the head of a Ray cluster ({error.code().name}). By default its port is "
                "6379; 8265 is the dashboard, and 10001 is Ray Client."
            ) from error
        if started_here and MODE not in os.environ and has_token():
            _enable_token()
            return _ask(address, started_here=started_here)
        raise ClusterError(_token_message(address)) from error
    return nodes, json.loads(metadata) if metadata else None


def _enable_token() -> None:
    """Send the token from now on, as Ray does for a cluster that it finds on this machine."""
    os.environ[MODE] = "token"
    keep_token_private()
    read_auth_mode()


def _token_message(address: str) -> str:
    if os.environ.get(MODE) == "token":
        return (
            f"The cluster at --address {address} rejects the token in {token_place()}. Put the token of the cluster "
            "there (ray get-auth-token on the cluster prints it)."
        )
    put_token = (
        "" if has_token() else f" and put its token into {token_place()} (ray get-auth-token on the cluster prints it)"
    )
    return f"The cluster at --address {address} requires a token, and none is sent. Export {MODE}=token{put_token}."


def _version_message(address: str, versions: dict[str, Any]) -> str:
    import ray

    cluster_ray, cluster_python = versions["ray_version"], versions["python_version"]
    same_python = cluster_python == platform.python_version()
    install = f"pip install 'ray[default,train,tune]=={cluster_ray}'"
    way_out = install if same_python else f"use Python {cluster_python} here"
    return (
        f"The cluster at --address {address} has Ray {cluster_ray} and Python {cluster_python}; this machine has Ray "
        f"{ray.__version__} and Python {platform.python_version()}. Either {way_out}, or run the sweep on the cluster: "
        f"{_AS_JOB}."
    )


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
