"""`hold`, the process of `dmls-ray up`: it holds Ray and the templates of all processes that a command starts.

A command has none of its processes from another command: its own process, and all that it starts, are new copies. So
what is said of a start of its own holds for them.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray

from dmls_ray.cluster.connect import NAMESPACE
from dmls_ray.cluster.joined import JoinedCluster
from dmls_ray.cluster.joining import keep_token_private
from dmls_ray.cluster.local import LocalCluster, start_cluster
from dmls_ray.cluster.templates import prepare_templates
from dmls_ray.util.errors import ClusterError, DmlsRayError
from dmls_ray.util.interpreter import CHILD_SUBREAPER, DEATH_SIGNAL, handle_interrupts, kill_descendants, prctl
from dmls_ray.util.standby import IDLE_S, READY, Standby, variables_of_terminal
from dmls_ray.util.template_request import COMMANDS, RUNS, WORKERS

END_TIMEOUT_S = 10.0
"""How long killed processes may take to end."""

_POLL_S = 0.5


def hold(descriptor: int, prepare: str, file: str, given: Mapping[str, Any]) -> None:
    """Be the process of `dmls-ray up` until it is asked to end: start a standby, and let commands find it.

    Whatever it starts ends with it, also where one of its processes is killed.

    Args:
        descriptor: of a pipe for a line: `READY`, or why there is no standby.
        prepare: `module:function` that imports what the processes of commands need.
        file: path of the file by which commands find it.
        given: the fields of `Standby` that the command knows.
    """
    # Those of the terminal are of each command.
    for name in variables_of_terminal():
        del os.environ[name]
    prctl(CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        prctl(DEATH_SIGNAL, signal.SIGTERM)
        _hold(descriptor, prepare, file, given)
        return
    os.close(descriptor)

    def forward(*_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)

    handle_interrupts(forward)
    os.waitpid(child, 0)
    _forget(file)
    kill_descendants(END_TIMEOUT_S)


def _hold(descriptor: int, prepare: str, file: str, given: Mapping[str, Any]) -> None:
    """Start a standby, say so, and end it when it is asked to end, is not used or has lost a part."""
    prepare_templates({COMMANDS: prepare})
    logging.getLogger("ray").setLevel(logging.ERROR)
    asked: list[int] = []
    with open(descriptor, "w", encoding="utf-8") as answer:
        try:
            keep_token_private(make=given["joined"] is None)
            cluster = _cluster(
                given["joined"], namespace=NAMESPACE, logging_level=logging.ERROR, configure_logging=False
            )
            standby = _standby(cluster, given)
            handle_interrupts(lambda number, _: asked.append(number))
            standby.write(Path(file))
            answer.write(READY)
            answer.flush()
        except BrokenPipeError:
            asked.append(signal.SIGINT)  # the command was stopped meanwhile
        except (DmlsRayError, OSError) as error:
            answer.write(" ".join(str(error).split()))
            return
    _wait_for_end(standby, cluster, asked)
    _forget(file)
    # Commands that have found it go on; those that find it now do not begin.
    with open(standby.users, "rb") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        cluster.end_workers()
        ray.shutdown()
        cluster.remove()


def _cluster(joined: str | None, **options: Any) -> LocalCluster | JoinedCluster:
    """Start Ray here, or hold what is needed on a cluster."""
    if joined is None:
        return start_cluster(**options)
    return JoinedCluster(joined, log_to_driver=False, **options)


def _standby(cluster: LocalCluster | JoinedCluster, given: Mapping[str, Any]) -> Standby:
    """What a cluster and its templates are for commands, once all of them are ready.

    Raises:
        ClusterError: a template cannot be prepared.
    """
    if cluster.templates is None:
        raise ClusterError("dmls-ray up needs Linux.")
    try:
        cluster.templates.wait_for(COMMANDS)
    except OSError as error:
        raise ClusterError(f"What commands import cannot be imported ({error}); dmls-ray ls says why.") from error
    standby = Standby(
        holder=os.getppid(),
        address=ray.get_runtime_context().gcs_address,
        templates=str(cluster.templates.folder),
        parts={name: process.pid for name, process in cluster.parts.items()},
        **given,
    )
    standby.users.touch()
    standby.ray_user.touch()
    return standby


def _wait_for_end(standby: Standby, cluster: LocalCluster | JoinedCluster, asked: Collection[int]) -> None:
    """Wait until a signal was `asked`, no command has used it for long, or it has lost a process."""
    used = time.monotonic()
    while not asked and cluster.is_whole and time.monotonic() - used < IDLE_S:
        time.sleep(_POLL_S)
        if standby.is_used():
            used = time.monotonic()
        elif not _serve(standby.templates):  # which would take time from a run
            return


def _serve(folder: str) -> bool:
    """Whether all templates listen."""
    for name in (RUNS, WORKERS, COMMANDS):
        with socket.socket(socket.AF_UNIX) as template:
            try:
                template.connect(os.path.join(folder, name))
            except OSError:
                return False
    return True


def _forget(file: str) -> None:
    """Let no further command find the standby of this process or its parent."""
    with suppress(OSError, ValueError, KeyError):
        if json.loads(Path(file).read_text(encoding="utf-8"))["holder"] in (os.getpid(), os.getppid()):
            Path(file).unlink()
