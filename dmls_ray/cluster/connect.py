"""Reach a Ray cluster, or start one here."""

from __future__ import annotations

import logging
import os
import socket
import sys
from pathlib import Path

import joblib

from dmls_ray.errors import ClusterError

NAMESPACE = "dmls_ray"
"""Ray namespace of everything that a sweep names."""

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
    # A run that fails tells no metric, and is not to end the search.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Tune's newer console prints its configuration whatever its verbosity.
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # How soon Train sees that a rank died, or that all have ended; by default 2 s.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


_PROBE_S = 5.0
"""How long a cluster may take to answer."""


def cluster_at(address: str | None) -> str | None:
    """The running cluster to join; None where one of our own must be started.

    It is that which this process is connected to (a notebook, say), else the address given, else RAY_ADDRESS, else
    that of a cluster that `ray start` runs on this machine.
    """
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return "this process's own connection"
    given = address or os.environ.get("RAY_ADDRESS")
    if given:
        return given
    # `ray start --head` leaves its address here, and `ray stop` takes it away; a machine that went down does not.
    started = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    if not started.exists():
        return None
    left = started.read_text().strip()
    return left if _unreachable(left) is None else None


def connect(address: str | None, *, dashboard: bool, verbose: bool) -> None:
    """Join a running cluster, or start one here.

    Args:
        address: of a running cluster, or None to start one.
        dashboard: whether a cluster of our own shows Ray's dashboard, on the loopback interface only.
        verbose: show what Ray and the ranks print.

    Raises:
        ClusterError: the address cannot be reached.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        return  # a notebook's own connection, which stays its own

    # Ray announces its authentication through this logger before it reads logging_level.
    logging.getLogger("ray").setLevel(logging.INFO if verbose else logging.ERROR)
    common = {
        "namespace": NAMESPACE,
        "log_to_driver": verbose,
        "logging_level": logging.INFO if verbose else logging.ERROR,
        "configure_logging": verbose,
    }
    if address is None:
        ray.init(
            address="local",
            num_cpus=joblib.cpu_count(),
            include_dashboard=dashboard,
            dashboard_host="127.0.0.1",
            **common,
        )
        _make_token_private()
        return
    # Ray itself would try for minutes.
    reason = _unreachable(address)
    try:
        if reason is None:
            ray.init(address=address, **common)
            # What the cluster says of its nodes it says in colours, to every driver; we say it ourselves.
            ray._private.worker._worker_logs_enabled = verbose
            return
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    raise ClusterError(
        f"--address {address} cannot be reached ({reason}); start a cluster with ray start --head, "
        "or leave --address and RAY_ADDRESS out to use this machine alone."
    )


def head_answers() -> bool:
    """Whether the connected cluster's head can be reached; waits for it no longer than it takes to know."""
    import ray

    return _unreachable(ray.get_runtime_context().gcs_address) is None


def give_a_head_start() -> None:
    """Start, early, the actor that Train's controller waits for before it places its workers.

    Ray makes it on demand; asked for while PyTorch still loads in this process, it is there when it is needed.
    """
    try:
        from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
            get_or_create_autoscaling_coordinator,
        )
    except ImportError:
        return  # another version of Ray keeps it elsewhere; Train itself starts it then, a second later
    get_or_create_autoscaling_coordinator()


def _make_token_private() -> None:
    """Ray writes its token readable by all; whoever has it runs code here."""
    token = Path.home() / ".ray" / "auth_token"
    if token.exists() and token.stat().st_mode & 0o077:
        token.chmod(0o600)


def _unreachable(address: str) -> str | None:
    """Why nothing answers at HOST:PORT; None where something does, or where the address is of another form."""
    host, colon, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if not colon or not port.isdecimal():
        return None
    try:
        socket.create_connection((host, int(port)), timeout=_PROBE_S).close()
    except OSError as error:
        return str(error)
    return None
