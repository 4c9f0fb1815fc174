"""`end_stopped_actors`: ends Tune's actors whose process is stopped (SIGSTOP), so that Tune starts others.

Tune waits for a result of its actor without a bound, since a run may take any time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import psutil
import ray

from dmls_ray.cluster.compat import pids_of_actors
from dmls_ray.cluster.processes import end_process, start_of

CHECK_INTERVAL_S = 5.0
"""Interval in which the processes are looked at."""

STOPPED_TIMEOUT_S = 60.0
"""How long an actor may be stopped, as seen at all looks; then another takes its place."""


def end_stopped_actors(class_name: str, ended: threading.Event, notify: Callable[[str], None]) -> None:
    """Look at the actors of this process's job until the sweep is over. They are on this machine.

    Args:
        class_name: their class.
        ended: set when the sweep is over.
        notify: receives a line about each actor that is ended.
    """
    # Looks are counted, not seconds: this process may have been stopped as well, with all of its machine.
    looks: Counter[int] = Counter()
    while not ended.wait(CHECK_INTERVAL_S):
        try:
            stopped = [pid for pid in pids_of_actors(class_name) if _is_stopped(pid)]
        except (ray.exceptions.RayError, ConnectionError, RuntimeError):
            continue  # Ray does not answer now, or the sweep is over
        looks = Counter({pid: looks[pid] + 1 for pid in stopped})
        for pid in stopped:
            if looks[pid] * CHECK_INTERVAL_S < STOPPED_TIMEOUT_S:
                continue
            notify(f"Ray Tune's actor was stopped for {STOPPED_TIMEOUT_S:g} s; another takes its place.")
            try:
                end_process(pid, start_of(pid))
            except psutil.NoSuchProcess:
                continue


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False
