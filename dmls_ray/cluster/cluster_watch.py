"""Loops that watch a cluster that was joined: its nodes, which come and go, and its head, which may be lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import ray

from dmls_ray.cluster.address_check import no_answer
from dmls_ray.cluster.resources import Resources, cluster_resources

CHECK_INTERVAL_S = 1.0
"""Interval in which the nodes and the head of a cluster are looked at."""

HEAD_TIMEOUT_S = 20.0
"""How long the head may not answer. Ray's own calls wait for it for three minutes, then end the process."""


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


def watch_head(ended: threading.Event, head_is_lost: Callable[[], None]) -> None:
    """Call `head_is_lost` once, if the head has not answered for `HEAD_TIMEOUT_S`."""
    silent_since: float | None = None
    while not ended.wait(CHECK_INTERVAL_S):
        asked = time.monotonic()
        if no_answer(ray.get_runtime_context().gcs_address) is None:
            silent_since = None
            continue
        silent_since = silent_since or asked
        if time.monotonic() - silent_since > HEAD_TIMEOUT_S:
            head_is_lost()
            return
