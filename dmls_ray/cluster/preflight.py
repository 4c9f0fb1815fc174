"""What stands at an address: asked before Ray, which tries for up to a minute and then says it in many lines."""

from __future__ import annotations

import json
import os
import platform
import socket
from typing import Any

import psutil

from dmls_ray.cluster.auth import MODE, has_token, keep_token_private, token_place
from dmls_ray.cluster.compat import alive_nodes, ask_head, check_versions, read_auth_mode
from dmls_ray.util.errors import ClusterError

_ANSWER_S = 5.0
"""How long a cluster may take to answer."""

_AS_JOB = "ray job submit --address http://HEAD:8265 --working-dir . -- python SCRIPT"


def no_answer(address: str) -> str | None:
    """Why nothing answers at HOST:PORT; None where something does, or where the address is of another form."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        return None
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except OSError as error:
        return str(error)
    return None


def check_address(address: str, *, started_here: bool) -> None:
    """Whether this process can join the cluster at an address.

    Args:
        address: HOST:PORT of its head.
        started_here: the cluster was started on this machine, so this machine's token is for it.

    Raises:
        ClusterError: it cannot, and why, and what to do.
    """
    _check_form(address)
    if reason := no_answer(address):
        raise ClusterError(
            f"--address {address} cannot be reached ({reason}); start a cluster with ray start --head, or leave "
            "--address and RAY_ADDRESS out to use this machine alone."
        )
    if os.environ.get(MODE) == "token" and not has_token():
        raise ClusterError(
            f"{MODE}=token, and there is no token in {token_place()}; put the cluster's there, with chmod 600 (ray "
            "get-auth-token on the cluster prints it)."
        )
    try:
        nodes, versions = _ask(address, started_here=started_here)
    except ImportError:
        return  # another version of Ray keeps these elsewhere; it finds all of this out by itself, later
    if versions is not None:
        try:
            check_versions(versions, address)
        except RuntimeError as error:
            raise ClusterError(_of_versions(address, versions)) from error
    if not _is_here(nodes):
        raise ClusterError(
            f"This machine is not part of the cluster at --address {address}, and a sweep starts on one that is: ray "
            f"start --address={address} here (--num-cpus=0 to lend it no cores), or, from anywhere, {_AS_JOB}."
        )


def _check_form(address: str) -> None:
    scheme, separator, _ = address.partition("://")
    if separator and scheme == "ray":
        # Ray Tune then runs on the cluster, and with it what should listen to the runs here.
        raise ClusterError(
            f"--address {address} is of Ray Client, through which a sweep cannot hear of its runs; run it on the "
            f"cluster: {_AS_JOB}."
        )
    if separator and scheme in ("http", "https"):
        raise ClusterError(
            f"--address {address} is of Ray's dashboard, which takes jobs: ray job submit --address {address} "
            "--working-dir . -- python SCRIPT"
        )
    host, _, port = address.rpartition(":")
    if separator or not host or not port.isdecimal():
        raise ClusterError(
            f"--address {address} is no address of a cluster; give HOST:PORT of its head, whose port is 6379 unless "
            "ray start --head --port says otherwise; auto for one on this machine; local to start a new one."
        )


def _ask(address: str, *, started_here: bool) -> tuple[list[Any], dict[str, Any] | None]:
    """The cluster's nodes, and its versions if it reports them.

    Raises:
        ClusterError: it asks for another token, or it is no cluster.
    """
    import grpc

    try:
        nodes, metadata = ask_head(address, _ANSWER_S)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAUTHENTICATED:
            raise ClusterError(
                f"What answers at --address {address} is no head of a Ray cluster ({error.code().name}); its port is "
                "6379 unless ray start --head --port says otherwise, 8265 is the dashboard's and 10001 Ray Client's."
            ) from error
        if started_here and MODE not in os.environ and has_token():
            _send_token()
            return _ask(address, started_here=started_here)
        raise ClusterError(_of_token(address)) from error
    return nodes, json.loads(metadata) if metadata else None


def _send_token() -> None:
    """What Ray does by itself where it is left to find a cluster on this machine."""

    os.environ[MODE] = "token"
    keep_token_private()
    read_auth_mode()


def _of_token(address: str) -> str:
    if os.environ.get(MODE) == "token":
        return (
            f"The cluster at --address {address} does not take the token in {token_place()}; put the cluster's there "
            "(ray get-auth-token on the cluster prints it)."
        )
    there = (
        "" if has_token() else f", and put its token into {token_place()} (ray get-auth-token on the cluster prints it)"
    )
    return f"The cluster at --address {address} asks for a token, and none is sent; export {MODE}=token{there}."


def _of_versions(address: str, versions: dict[str, Any]) -> str:
    import ray

    theirs, python = versions["ray_version"], versions["python_version"]
    same_python = python == platform.python_version()
    cure = f"pip install 'ray[default,train,tune]=={theirs}'" if same_python else f"use Python {python} here"
    return (
        f"The cluster at --address {address} has Ray {theirs} and Python {python}, and here are Ray {ray.__version__} "
        f"and Python {platform.python_version()}; {cure}, or run it with the cluster's own: {_AS_JOB}."
    )


def _is_here(nodes: list[Any]) -> bool:
    """Whether one of the nodes is on this machine: by its address, or by its process."""
    alive = alive_nodes(nodes)
    ours = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    if any(node.node_manager_address in ours for node in alive):
        return True
    flags = {f"--node_id={node.node_id.hex()}" for node in alive}
    raylets = [process for process in psutil.process_iter(["name", "cmdline"]) if process.info["name"] == "raylet"]
    return any(flags & set(raylet.info["cmdline"] or ()) for raylet in raylets)
