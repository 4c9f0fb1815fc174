"""What Ray and Python read from the environment, in this process and in those that it starts."""

from __future__ import annotations

import os

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A head that ends while it is asked: gRPC would print a line about it.
    "GRPC_VERBOSITY": "ERROR",
    # Our own store is the record of a sweep; Tune's loggers would write each run three times more.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Nor do we restore from Tune's own state of a sweep; it would write that of all trials every ten seconds.
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",
    # Ctrl-C is ours: Tune would wait for the run under way.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    # By default Tune starts the actor of one lane after the other, each in a second.
    "TUNE_MAX_PENDING_TRIALS_PG": "16",
    # A run that fails reports no metric, and must not end the search.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Tune's newer console prints its configuration whatever its verbosity.
    "RAY_AIR_NEW_OUTPUT": "0",
    # By default 30: on a busy machine the start of its processes takes longer.
    "RAY_raylet_start_wait_time_s": "60",
    "RAY_gcs_server_port_wait_time_s": "60",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # How soon Train sees that a rank died, or that all have ended; by default 2 s.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # By default 15: any other process of the user would take the cores from the ranks whose speed is measured.
    "RAY_worker_niceness": "0",
}
"""Ray reads these when it is imported or when its processes start; what the user has set stays."""


def set_environment() -> None:
    """Set it, before Ray is imported."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    # Whatever the locale is, Ray's processes read and write UTF-8.
    os.environ["PYTHONUTF8"] = "1"
