"""Loops that watch the nodes of a cluster that was joined, the processes of one that was started, and the head."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import ray

from dmls_ray.cluster.address_check import head_answers, no_answer
from dmls_ray.cluster.processes import KILL_TIMEOUT_S
from dmls_ray.cluster.resources import Resources, cluster_resources

CHECK_INTERVAL_S = 1.0
"""Interval in which the nodes and the head of a cluster are looked at."""

HEAD_TIMEOUT_S = 20.0
"""How long nothing may listen at the head's address: Ray ends this process after a minute."""

ANSWER_TIMEOUT_S = 5.0
"""How long a busy head may take for an answer."""

SILENT_TIMEOUT_S = 60.0
"""How long the head may answer no question: its process may be stopped for a while, its machine out of memory."""

NOTE_AFTER_S = 10.0
"""How long it may answer no question before the user reads about it."""

PROCESS_INTERVAL_S = 0.1
"""Interval in which the processes of a cluster that was started here are looked at; a look takes microseconds."""

STOP_TIMEOUT_S = 5.0
"""How long a sweep may take to begin its end that is stopped together with the processes of its cluster."""

_PARTS = {"raylet": "Ray's node process (raylet)", "gcs_server": "Ray's control process (GCS)"}
"""The processes that a cluster cannot do without."""


def watch_nodes(ended: threading.Event, reconcile: Callable[[Resources], None]) -> None:
    """Report what the cluster has, every second, until the sweep is over."""
    while not ended.wait(CHECK_INTERVAL_S):
        try:
            reconcile(cluster_resources())
        except SystemExit:
            return  # raised by ray.shutdown() in a waiting thread
        except (ray.exceptions.RayError, ConnectionError, RuntimeError):
            if not ray.is_initialized():
                return
            # The head does not answer now; if it does not come back, Ray ends this process's connection.


def watch_head(
    address: str, name: str, ended: threading.Event, *, notify: Callable[[str], None], lost: Callable[[str], None]
) -> None:
    """Ask the head every second, and report once that it is lost if it does not answer for long.

    Args:
        address: of the head.
        name: of the head, in messages.
        ended: set when the head is needed no more.
        notify: called with a line for the user where the head does not answer, and where it answers again.
        lost: called once, with the reason.
    """
    silent_since: float | None = None
    unreachable_since: float | None = None
    noted = False
    while not ended.wait(CHECK_INTERVAL_S):
        is_unreachable = no_answer(address) is not None
        if not is_unreachable and head_answers(address, ANSWER_TIMEOUT_S):
            if noted:
                notify(f"{name} answers again.")
            silent_since, unreachable_since, noted = None, None, False
            continue
        # Not the time of the question: this process may have been stopped since, and an answer would be too late.
        now = time.monotonic()
        silent_since = silent_since or now
        unreachable_since = (unreachable_since or now) if is_unreachable else None
        if now - silent_since > SILENT_TIMEOUT_S or now - (unreachable_since or now) > HEAD_TIMEOUT_S:
            lost(f"{name} does not answer any more")
            return
        if now - silent_since > NOTE_AFTER_S and not noted and not ended.is_set():
            notify(f"{name} does not answer; if it is silent for {SILENT_TIMEOUT_S:g} s, the sweep ends.")
            noted = True


def watch_processes(session: Path, ended: threading.Event, cluster_is_lost: Callable[[str], None]) -> None:
    """Call `cluster_is_lost` once, with the reason, if the raylet or the GCS of a cluster that was started here ends.

    Ray goes on without the raylet until it needs it, and ends this process a minute after the GCS has ended.

    Args:
        session: folder of Ray's files of the cluster.
        ended: set when the cluster is needed no more.
        cluster_is_lost: called from this thread.
    """
    if not hasattr(os, "waitid"):
        return  # macOS before Python 3.13
    parts = {child.pid: _PARTS[child.name()] for child in _children(session) if child.name() in _PARTS}
    while not ended.wait(PROCESS_INTERVAL_S):
        for pid, part in parts.items():
            how = _how_ended(pid)
            if how is None:
                continue
            # Whoever stops a job may send SIGTERM to all its processes.
            if how == signal.SIGKILL or not ended.wait(STOP_TIMEOUT_S):
                cluster_is_lost(f"{part} {'was killed' if how == signal.SIGKILL else 'has ended'}")
            return


def _how_ended(pid: int) -> int | None:
    """The signal, or the exit code, with which a child of this process has ended; None while it runs."""
    try:
        # Ray itself waits for its processes at the end of a sweep.
        state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return None if state is None else state.si_status


def end_processes(session: Path) -> None:
    """Kill what is left of a cluster that this process has started, and wait for it.

    Without a raylet or a GCS, Ray's other processes would remain for up to a minute.

    Args:
        session: folder of Ray's files of the cluster.
    """
    left = set(_children(session))
    for child in list(left):
        left.update(_killed(child))
    for process in psutil.process_iter(["cmdline"]):
        # The raylet's children are those of another process when it is gone. Each writes a log, and has this name.
        if "".join(process.info["cmdline"] or [])[:5] == "ray::":
            with suppress(psutil.Error):
                if any(Path(file.path).is_relative_to(session) for file in process.open_files()):
                    left.update(_killed(process))
    psutil.wait_procs(left, timeout=KILL_TIMEOUT_S)


def _children(session: Path) -> list[psutil.Process]:
    """The processes of a cluster that are children of this process; it may have others."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(str(session) in word for word in child.cmdline()):
                found.append(child)
    return found


def _killed(process: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants, which are killed."""
    with suppress(psutil.NoSuchProcess):
        family = [process, *process.children(recursive=True)]
        for member in family:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                member.kill()
        return family
    return []
