"""`LocalCluster`: a Ray that is started here, for this machine alone."""

from __future__ import annotations

import os
import tempfile
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil

from dmls_ray.cluster import start_worker
from dmls_ray.cluster.compat import bare_cluster, loopback_only
from dmls_ray.cluster.resources import usable_gpus
from dmls_ray.cluster.templates import ClusterTemplates, take_templates
from dmls_ray.util.cores import usable_cores
from dmls_ray.util.errors import ClusterError, ClusterLostError
from dmls_ray.util.files import PREFIX, TemporaryFolder, short_folder
from dmls_ray.util.text import first_line

LOOPBACK = "127.0.0.1"

_PARTS = {"raylet": "Ray's node process (raylet)", "gcs_server": "Ray's control process (GCS)"}
"""The processes that a cluster cannot do without."""


class LocalCluster:
    """A cluster that was started here.

    Args:
        folder: folder of Ray's files of the cluster.
        templates: those of its worker processes.
    """

    def __init__(self, folder: TemporaryFolder, templates: ClusterTemplates | None) -> None:
        self.folder, self.templates = folder, templates
        self.parts = {_PARTS[child.name()]: child for child in _children(folder.path) if child.name() in _PARTS}
        """Processes that the cluster cannot do without, by their name for a person."""

    def end_workers(self) -> None:
        """Let worker processes end, for which Ray would wait. No thread of this process may wait for one of them."""
        if self.templates is not None:
            self.templates.end()

    def remove(self) -> None:
        """End and remove what is left when Ray has ended."""
        end_processes(self.folder.path)
        if self.templates is not None:
            self.templates.close()
        self.folder.remove()

    @property
    def is_whole(self) -> bool:
        """Whether all of these processes run."""
        return all(_runs(part) for part in self.parts.values())


def start_cluster(*, include_dashboard: bool = False, log_to_driver: bool = False, **options: Any) -> LocalCluster:
    """Start Ray for this machine alone; nothing outside can reach it.

    Args:
        include_dashboard: whether it has the dashboard.
        log_to_driver: whether what its processes print is printed here.
        options: further ones of ray.init.

    Raises:
        ClusterError: Ray cannot be started.
        ClusterLostError: Ray did not start in time; another start may succeed.
    """
    import ray

    # Ray's sockets need a short path.
    below = f"/{PREFIX}ray-12345678/session_0000-00-00_00-00-00_000000_{os.getpid()}/sockets/plasma_store"
    named = os.environ.get("RAY_TMPDIR")
    parent = short_folder(Path(tempfile.gettempdir()), below) if named is None else Path(named)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = TemporaryFolder("ray", parent)
    except OSError as error:
        raise ClusterError(
            f"Ray's files cannot be in {parent} ({error.strerror}); name a folder in RAY_TMPDIR."
        ) from error
    templates = take_templates()
    program = start_worker.__file__ if templates else None
    try:
        with (
            loopback_only(),
            bare_cluster(program, dashboard=include_dashboard, logs=log_to_driver),
            templates.known() if templates else nullcontext(),
        ):
            ray.init(
                address="local",
                num_cpus=usable_cores(),
                # Ray also counts those that PyTorch cannot use.
                num_gpus=usable_gpus(),
                dashboard_host=LOOPBACK,
                _node_ip_address=LOOPBACK,
                _temp_dir=str(folder.path),
                include_dashboard=include_dashboard,
                log_to_driver=log_to_driver,
                **options,
            )
    except BaseException as error:
        if templates is not None:
            templates.close()
        if isinstance(error, OSError | ValueError):
            raise ClusterError(f"Ray could not be started on this machine ({first_line(error)}).") from error
        end_processes(folder.path)
        if not isinstance(error, Exception):
            raise
        # A bare Exception, where Ray's processes need more than a minute.
        reason = first_line(error).rstrip(".")
        raise ClusterLostError(f"Ray could not be started in time, as on a busy machine ({reason})") from error
    return LocalCluster(folder, templates)


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
