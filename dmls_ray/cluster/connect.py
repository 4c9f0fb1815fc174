"""Reach a Ray cluster, or start one here, for the duration of one sweep."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import joblib

from dmls_ray.cluster.address_check import check_address
from dmls_ray.cluster.auth import keep_token_private
from dmls_ray.cluster.compat import loopback_only, prestart_autoscaling_coordinator, show_cluster_messages
from dmls_ray.cluster.current_cluster import current_cluster
from dmls_ray.cluster.resources import Resources, cluster_resources
from dmls_ray.util.errors import ClusterError, HeadLostError
from dmls_ray.util.temporary_folder import OwnedFolder, remove_abandoned
from dmls_ray.util.text import first_line

NAMESPACE = "dmls_ray"
"""Ray namespace of everything that a sweep names."""

_LOOPBACK = "127.0.0.1"

# Ray reads these when it is imported or when its processes start; what the user has set stays.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Our own store is the record of a sweep; Tune's loggers would write each run three times more.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Nor do we restore from Tune's own state of a sweep; it would write that of all trials every ten seconds.
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",
    # Ctrl-C is ours: Tune would wait for the run under way.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    # A run that fails reports no metric, and must not end the search.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Tune's newer console prints its configuration whatever its verbosity.
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # How soon Train sees that a rank died, or that all have ended; by default 2 s.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def cluster_at(address: str | None, notify: Callable[[str], None]) -> str | None:
    """The running cluster to join; None if a new one must be started.

    It is that which this process is connected to (a notebook, say), else the address given, else RAY_ADDRESS, else
    that of a cluster that this user, or root, runs on this machine with `ray start`. `auto` is one of these last two,
    and `local` none.

    Args:
        address: as given by a flag.
        notify: receives one line about a cluster of another user, which is not joined.

    Raises:
        ClusterError: `auto` was given, and there is none.
    """
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return "this process's own connection"
    asked = [given for given in (address, os.environ.get("RAY_ADDRESS")) if given]
    named = next((given for given in asked if given != "auto"), None)
    if named is not None:
        return None if named == "local" else named
    started = current_cluster(notify)
    if asked and started is None:
        raise ClusterError("--address auto finds no cluster on this machine; start one with ray start --head.")
    return started


@contextmanager
def ray_session(joined: str | None, *, dashboard: bool, verbose: bool) -> Iterator[Resources]:
    """Join a Ray cluster, or start one, and yield its resources. A cluster that was started here is ended.

    Args:
        joined: address of the cluster to join; None to start one.
        dashboard: whether Ray shows its dashboard.
        verbose: whether Ray and the ranks print.
    """
    # The imports take as long as the start of Ray, so they run at the same time.
    loading = threading.Thread(target=importlib.import_module, args=("dmls_ray.cluster.tune.run_jobs",), daemon=True)
    loading.start()
    import ray

    connected_before = ray.is_initialized()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    folder: OwnedFolder | None = None
    try:
        session = connect(joined, dashboard=dashboard, verbose=verbose)
        if session is not None and not verbose:
            # By default Ray keeps the logs of every cluster, also after a sweep without a failure.
            remove_abandoned(session.parent, "session_*")
            folder = OwnedFolder(session)
        if threading.current_thread() is threading.main_thread():
            # Ray installs a handler that would end the process at once.
            signal.signal(signal.SIGTERM, on_sigterm)
        prestart_autoscaling_coordinator()
        loading.join()
        yield cluster_resources()
    except HeadLostError:
        connected_before = True  # the head is gone, so ray.shutdown() would block
        raise
    except Exception:
        if folder is not None:
            folder.keep()
            folder = None
        raise
    finally:
        if not connected_before:
            ray.shutdown()
            show_cluster_messages(True)
        if folder is not None:
            folder.remove()


def connect(address: str | None, *, dashboard: bool, verbose: bool) -> Path | None:
    """Join a running cluster, or start one here; returns the folder of Ray's files of a cluster that was started.

    Args:
        address: of a running cluster, or None to start one.
        dashboard: whether a cluster that is started shows Ray's dashboard, on the loopback interface only.
        verbose: show what Ray and the ranks print.

    Raises:
        ClusterError: the cluster cannot be started, reached or joined, or a token is not kept private.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        return None  # a notebook's own connection, which stays its own

    # Ray announces its authentication through this logger before it reads logging_level.
    logging.getLogger("ray").setLevel(logging.INFO if verbose else logging.ERROR)
    # Tune logs a traceback for each death of its actor, which it starts again. What ends a sweep is raised.
    logging.getLogger("ray.tune.execution.tune_controller").setLevel(logging.INFO if verbose else logging.CRITICAL)
    common = {
        "namespace": NAMESPACE,
        "log_to_driver": verbose,
        "logging_level": logging.INFO if verbose else logging.ERROR,
        "configure_logging": verbose,
    }
    keep_token_private(make=address is None)
    if address is None:
        try:
            with loopback_only():
                started = ray.init(
                    address="local",
                    num_cpus=joblib.cpu_count(),
                    include_dashboard=dashboard,
                    dashboard_host=_LOOPBACK,
                    _node_ip_address=_LOOPBACK,
                    **common,
                )
        except Exception as error:  # a bare Exception, where Ray's processes need more than 30 s
            raise ClusterError(
                f"Ray could not be started on this machine ({first_line(error)}). Is it too busy, or short of memory? "
                "Give the command again later; runs that are finished are kept."
            ) from error
        show_cluster_messages(verbose)
        return Path(started.address_info["session_dir"])
    try:
        check_address(address, started_here=address == current_cluster(lambda _: None))
    except ClusterError as error:
        if os.environ.get("RAY_ADDRESS") != address:
            raise
        # The address is not from a flag.
        raise ClusterError(str(error).replace(f"--address {address}", f"RAY_ADDRESS={address}", 1)) from error
    try:
        ray.init(address=address, **common)
        show_cluster_messages(verbose)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        reason = first_line(error)
        raise ClusterError(
            f"--address {address} cannot be joined ({reason}); ray status --address {address} says how the cluster "
            "is. Leave --address and RAY_ADDRESS out to use this machine alone."
        ) from error
    return None
