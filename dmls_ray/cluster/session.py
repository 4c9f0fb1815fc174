"""`ray_session`: Ray for the duration of one sweep."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dmls_ray.cluster.compat import prestart_autoscaling_coordinator
from dmls_ray.cluster.connect import connect
from dmls_ray.cluster.resources import Resources, cluster_resources
from dmls_ray.util.errors import HeadLostError


@contextmanager
def ray_session(joined: str | None, *, dashboard: bool, verbose: bool) -> Iterator[Resources]:
    """Join a Ray cluster, or start one, and yield its resources. A cluster that was started here is ended.

    Args:
        joined: address of the cluster to join; None to start one.
        dashboard: whether Ray shows its dashboard.
        verbose: whether Ray and the ranks print.
    """
    # The imports take as long as the start of Ray, so they run at the same time.
    loading = threading.Thread(target=_load_ray_libraries, daemon=True)
    loading.start()
    import ray

    connected_before = ray.is_initialized()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        connect(joined, dashboard=dashboard, verbose=verbose)
        if threading.current_thread() is threading.main_thread():
            # Ray installs a handler that would end the process at once.
            signal.signal(signal.SIGTERM, on_sigterm)
        prestart_autoscaling_coordinator()
        loading.join()
        yield cluster_resources()
    except HeadLostError:
        connected_before = True  # the head is gone, so ray.shutdown() would block
        raise
    finally:
        if not connected_before:
            ray.shutdown()


def _load_ray_libraries() -> None:
    import dmls_ray.cluster.trainer
    import dmls_ray.cluster.tune.run_jobs  # noqa: F401
