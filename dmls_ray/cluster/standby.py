"""`hold`, the process of `dmls-ray up`: it holds Ray and the templates of all processes that a command starts.

A command has none of its processes from another command: its own process, and all that it starts, are new copies. So
what is said of a start of its own holds for them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import IO

import ray

from dmls_ray.cluster.connect import NAMESPACE
from dmls_ray.cluster.joining import keep_token_private
from dmls_ray.cluster.local import LocalCluster, end_processes, start_cluster
from dmls_ray.cluster.templates import prepare_templates
from dmls_ray.util.errors import ClusterError, DmlsRayError
from dmls_ray.util.interpreter import CHILD_SUBREAPER, DEATH_SIGNAL, handle_interrupts, kill_descendants, prctl
from dmls_ray.util.standby import IDLE_S, Standby, find_standby, state_file
from dmls_ray.util.template_request import COMMANDS, request

END_TIMEOUT_S = 10.0
"""How long killed processes may take to end."""

_POLL_S = 0.5


def hold(descriptor: int, prepare: str, circumstances: Mapping[str, str]) -> None:
    """Be the process of `dmls-ray up` until it is asked to end: start a standby, and let commands find it.

    Whatever it starts ends with it, also where one of its processes is killed.

    Args:
        descriptor: of a pipe for the line that says why there is no standby; it is empty once there is one.
        prepare: `module:function` that imports what the processes of commands need.
        circumstances: those of the command `up`.
    """
    prctl(CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        prctl(DEATH_SIGNAL, signal.SIGTERM)
        with open(descriptor, "w") as answer:
            _hold(answer, prepare, circumstances)
        return
    os.close(descriptor)

    def forward(*_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)

    handle_interrupts(forward)
    os.waitpid(child, 0)
    _forget(os.getpid())
    kill_descendants(END_TIMEOUT_S)


def _hold(answer: IO[str], prepare: str, circumstances: Mapping[str, str]) -> None:
    """Start a standby, say so, and end it when it is asked to end, is not used or has lost a part."""
    prepare_templates({COMMANDS: prepare})
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        keep_token_private(make=True)
        cluster = start_cluster(namespace=NAMESPACE, logging_level=logging.ERROR, configure_logging=False)
        standby = _standby(cluster, circumstances)
    except DmlsRayError as error:
        answer.write(" ".join(str(error).split()))
        return
    asked: list[int] = []
    handle_interrupts(lambda number, _: asked.append(number))
    standby.write()
    answer.close()
    _wait_for_end(standby, cluster, asked)
    _forget(standby.holder)
    # Commands that have found it go on.
    with open(standby.users) as users:
        fcntl.flock(users, fcntl.LOCK_EX)
    cluster.end_workers()
    ray.shutdown()
    end_processes(cluster.folder.path)
    cluster.remove()


def _standby(cluster: LocalCluster, circumstances: Mapping[str, str]) -> Standby:
    """What a cluster and its templates are for commands, once all of them are ready.

    Raises:
        ClusterError: a template cannot be prepared.
    """
    if cluster.templates is None:
        raise ClusterError("dmls-ray up needs Linux.")
    folder = cluster.templates.folder
    try:
        with request(COMMANDS, "os:getpid", (), folder=str(folder)) as copy:
            copy.recv(1)
    except OSError as error:
        raise ClusterError(f"What commands import cannot be imported ({error}); dmls-ray ls says why.") from error
    standby = Standby(
        holder=os.getppid(),
        address=ray.get_runtime_context().gcs_address,
        templates=str(folder),
        parts={name: process.pid for name, process in cluster.parts.items()},
        circumstances=circumstances,
    )
    standby.users.touch()
    standby.ray_user.touch()
    return standby


def _wait_for_end(standby: Standby, cluster: LocalCluster, asked: Collection[int]) -> None:
    """Wait until a signal was `asked`, no command has used it for long, or Ray has lost a process."""
    used = time.monotonic()
    while not asked and cluster.is_whole and time.monotonic() - used < IDLE_S:
        time.sleep(_POLL_S)
        if standby.is_used():
            used = time.monotonic()


def _forget(holder: int) -> None:
    """Let no further command find the standby of a process."""
    found = find_standby()
    if found is not None and found.holder == holder:
        state_file().unlink(missing_ok=True)
