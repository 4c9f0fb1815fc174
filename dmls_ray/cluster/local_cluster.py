"""Start a Ray cluster on this machine, with its files in a folder that is removed with it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import joblib
import psutil

from dmls_ray.cluster.compat import loopback_only
from dmls_ray.cluster.resources import usable_gpus
from dmls_ray.util.errors import ClusterError, ClusterLostError
from dmls_ray.util.temporary_folder import PREFIX, TemporaryFolder, short_folder
from dmls_ray.util.text import first_line

LOOPBACK = "127.0.0.1"

_PARTS = {"raylet": "Ray's node process (raylet)", "gcs_server": "Ray's control process (GCS)"}
"""The processes that a cluster cannot do without."""


class LocalCluster:
    """A cluster that was started here.

    Args:
        folder: folder of Ray's files of the cluster.
    """

    def __init__(self, folder: TemporaryFolder) -> None:
        self.folder = folder
        self.parts = {_PARTS[child.name()]: child for child in _children(folder.path) if child.name() in _PARTS}
        """Processes that the cluster cannot do without, by their name for a person."""

    @property
    def is_whole(self) -> bool:
        """Whether all of these processes run."""
        return all(_runs(part) for part in self.parts.values())


def start_cluster(**options: Any) -> LocalCluster:
    """Start Ray for this machine alone; nothing outside can reach it.

    Args:
        options: further ones of ray.init.

    Raises:
        ClusterError: Ray cannot be started.
        ClusterLostError: Ray did not start in time; another start may succeed.
    """
    import ray

    parent = _parent_of_files()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = TemporaryFolder("ray", parent)
    except OSError as error:
        raise ClusterError(
            f"Ray's files cannot be in {parent} ({error.strerror}); name a folder in RAY_TMPDIR."
        ) from error
    try:
        with loopback_only():
            ray.init(
                address="local",
                num_cpus=joblib.cpu_count(),
                # Ray also counts those that PyTorch cannot use.
                num_gpus=usable_gpus(),
                dashboard_host=LOOPBACK,
                _node_ip_address=LOOPBACK,
                _temp_dir=str(folder.path),
                **options,
            )
    except (OSError, ValueError) as error:
        raise ClusterError(f"Ray could not be started on this machine ({first_line(error)}).") from error
    except Exception as error:  # a bare Exception, where Ray's processes need more than a minute
        end_processes(folder.path)
        reason = first_line(error).rstrip(".")
        raise ClusterLostError(f"Ray could not be started in time, as on a busy machine ({reason})") from error
    return LocalCluster(folder)


def _parent_of_files() -> Path:
    """RAY_TMPDIR, else the folder for temporary files, or one with a shorter path, which Ray's sockets need."""
    if "RAY_TMPDIR" in os.environ:
        return Path(os.environ["RAY_TMPDIR"])
    usual = Path(tempfile.gettempdir())
    below = f"/{PREFIX}ray-12345678/session_0000-00-00_00-00-00_000000_{os.getpid()}/sockets/plasma_store"
    return short_folder(usual, below)


def end_processes(folder: Path) -> None:
    """Kill what is left of a cluster that this process has started, and wait for it.

    Without a raylet or a GCS, Ray's other processes would remain for up to a minute. So do those of a raylet that has
    died, which are children of another process by now; a supervisor ends them.

    Args:
        folder: folder of Ray's files of the cluster.
    """
    from dmls_ray.cluster.processes import end_process

    for child in _children(folder):
        end_process(child.pid, child.create_time())


def _children(folder: Path) -> list[psutil.Process]:
    """The processes of a cluster that are children of this process; it may have others."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(str(folder) in word for word in child.cmdline()):
                found.append(child)
    return found


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False
