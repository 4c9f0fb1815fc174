"""Joining a cluster: its address, Ray's token, and whether its machines have what ranks need.

All of it is checked before Ray connects or ranks start: Ray itself would try for minutes, and print many lines.
"""

from __future__ import annotations

import functools
import os
import secrets
import socket
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from dmls_ray.cluster.compat import ask_head
from dmls_ray.util.errors import ClusterError, ClusterLostError
from dmls_ray.util.files import open_regular
from dmls_ray.util.text import first_line

if TYPE_CHECKING:
    from dmls_ray.cluster.resources import Resources

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
        with open_regular(path) as file:
            address = file.read().decode(errors="replace").strip()
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


def join_cluster(address: str, **options: Any) -> None:
    """Connect this process to the cluster at HOST:PORT.

    Args:
        address: of the head.
        options: further ones of ray.init.

    Raises:
        ClusterError: the cluster cannot be reached or joined.
    """
    import ray

    check_address(address)
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        # All its lines: of other versions, Ray names those of both sides below the first.
        reason = " ".join(str(error).split())
        raise ClusterError(
            f"The cluster at {address} cannot be joined ({reason}). Install the versions of the cluster where they "
            "differ, or leave --address and RAY_ADDRESS out to use this machine alone."
        ) from error


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
                f"The cluster at {address} requires a token, and this machine sends none or another one. Export "
                f"{MODE}=token, and "
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


MODE = "RAY_AUTH_MODE"
"""Ray sends and asks for tokens where this variable is `token`."""


def keep_token_private(*, make: bool) -> None:
    """Make the token's file readable by its owner only; Ray itself makes it readable by all.

    Args:
        make: create a token if there is none; for a cluster that the sweep starts.

    Raises:
        ClusterError: the file can be read by others, and that cannot be changed; or none can be made.
    """
    # `ray.init("local")` enables token authentication by default; when joining a cluster only RAY_AUTH_MODE=token does.
    is_used = os.environ.get(MODE, "token" if make else "") == "token"
    if not is_used or os.environ.get("RAY_AUTH_TOKEN"):
        return
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        if make and not named:
            file.parent.mkdir(parents=True, exist_ok=True)
            private = functools.partial(os.open, mode=0o600)
            # If another sweep creates the file first, its token is used.
            with suppress(FileExistsError), open(file, "x", encoding="utf-8", opener=private) as opened:
                opened.write(secrets.token_hex(32))
        if file.exists() and file.stat().st_mode & 0o077:
            file.chmod(0o600)
    except OSError as error:
        raise ClusterError(
            f"Ray's token in {file} cannot be kept private ({error.strerror}); name a file that you own in "
            f"RAY_AUTH_TOKEN_PATH, or set {MODE}=disabled if no other user can reach this machine."
        ) from error


MISSING = "is missing"

_ANSWER_S = 60.0
"""How long a machine may take to start a worker that answers."""


def check_machines(resources: Resources) -> dict[str, str]:
    """Check that ranks can run on each machine.

    Args:
        resources: the machines; all of a cluster that was joined, or one that has joined it later.

    Returns:
        Ray's id of each machine that ranks can use -> its kind, as `Machine.kind`.

    Raises:
        ClusterError: a machine lacks dmls_ray or a library, has another version of it, or does not answer.
        ClusterLostError: a machine has left; another start finds the others.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_retries=0)(make_look())
    answers = {}
    for machine in resources.machines:
        if machine.cores or machine.gpus:
            there = NodeAffinitySchedulingStrategy(machine.node_id, soft=False)
            answers[look.options(scheduling_strategy=there).remote()] = machine
    if not answers:
        return {}
    here, _ = make_look()()
    kinds = {}
    _, late = ray.wait(list(answers), num_returns=len(answers), timeout=_ANSWER_S)
    if late:
        raise ClusterError(
            f"{answers[late[0]].name} has started no worker in {_ANSWER_S:g} s; its raylet.err and python-core-worker "
            "logs (/tmp/ray/session_latest/logs there) say why. Or take it out: ray stop there."
        )
    for answer, machine in answers.items():
        try:
            there, kinds[machine.node_id] = ray.get(answer)
            differences = differing(there, here)
        except (ray.exceptions.TaskUnschedulableError, ray.exceptions.NodeDiedError) as error:
            raise ClusterLostError(f"{machine.name} has left the cluster") from error
        except ray.exceptions.RayError as error:
            raise ClusterError(
                f"{machine.name} does not answer ({first_line(error)}); look at Ray's logs there, or take it out: ray "
                "stop there."
            ) from error
        if differences:
            raise ClusterError(
                f"{machine.name} cannot run ranks: {differences}; install the same there with pip, or let Ray bring "
                "dmls_ray along: ray job submit --working-dir . -- python SCRIPT"
            )
    return kinds


def differing(there: dict[str, str], here: dict[str, str]) -> str:
    """In which versions another machine differs from this one; empty for none."""
    differences = []
    for name, version in here.items():
        if version not in (MISSING, there[name]):
            differences.append(f"{name} {there[name]} (here {version})")
    return ", ".join(differences)


def make_look() -> Any:
    """Make the function that reports the versions of the libraries of a machine, with the digest of its dmls_ray, and
    the kind of the machine.

    It is a nested function, which Ray sends by value, so that it runs where dmls_ray cannot be imported.
    """
    missing = MISSING

    def look() -> tuple[dict[str, str], str]:
        import contextlib
        import hashlib
        import importlib.metadata
        import importlib.util
        import pathlib

        found = {}
        for package in ("torch", "torchvision", "numpy", "psutil", "joblib", "scikit-learn"):
            try:
                # One release is built for several kinds of GPU: 2.15.0+cpu, 2.15.0+cu130.
                found[package] = importlib.metadata.version(package).partition("+")[0]
            except importlib.metadata.PackageNotFoundError:
                found[package] = missing
        spec = importlib.util.find_spec("dmls_ray")
        found["dmls_ray"] = missing
        if spec is not None and spec.submodule_search_locations:
            folder = pathlib.Path(spec.submodule_search_locations[0])
            digest = hashlib.sha256()
            for file in sorted(folder.rglob("*.py")):
                digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
            found["dmls_ray"] = digest.hexdigest()[:12]
        kind = ""
        with contextlib.suppress(ImportError):  # another version, which is refused
            from dmls_ray.records.provenance import kind_of_machine, machine_facts

            kind = kind_of_machine(machine_facts())
        return found, kind

    return look


def lost_cluster(error: BaseException) -> ClusterLostError | None:
    """The loss of the cluster that an error of a sweep means, if it does."""
    import ray

    if isinstance(error, ClusterLostError):
        return error
    if isinstance(error, ray.exceptions.RayError | ConnectionError):
        return ClusterLostError(f"A call to Ray failed ({first_line(error)})")
    return None
