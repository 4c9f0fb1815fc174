"""Start a Ray cluster on this machine, with its files in a folder that is removed with it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import joblib
import psutil

from dmls_ray.cluster.compat import loopback_only
from dmls_ray.cluster.resources import usable_gpus
from dmls_ray.util.errors import ClusterError, ClusterLostError
from dmls_ray.util.socket_paths import room_above, short_folders
from dmls_ray.util.temporary_folder import PREFIX, TemporaryFolder
from dmls_ray.util.text import first_line

LOOPBACK = "127.0.0.1"

_PARTS = {"raylet": "Ray's node process (raylet)", "gcs_server": "Ray's control process (GCS)"}
"""The processes that a cluster cannot do without."""

_KILL_TIMEOUT_S = 3.0
"""How long a process that was killed may take to end."""


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
    parent = _parent_of_files()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = TemporaryFolder("ray", parent)
    except OSError as error:
        raise ClusterError(
            f"Ray's files cannot be in {parent} ({error.strerror}); name a folder in RAY_TMPDIR."
        ) from error
    try:
        _start(folder.path, options)
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
    room = room_above(f"/{PREFIX}ray-12345678/session_0000-00-00_00-00-00_000000_{os.getpid()}/sockets/plasma_store")
    if len(os.fsencode(usual)) <= room:
        return usual
    return next(short_folders(), usual)


def _start(folder: Path, options: Mapping[str, Any]) -> None:
    import ray

    with loopback_only():
        ray.init(
            address="local",
            num_cpus=joblib.cpu_count(),
            # Ray also counts those that PyTorch cannot use.
            num_gpus=usable_gpus(),
            dashboard_host=LOOPBACK,
            _node_ip_address=LOOPBACK,
            _temp_dir=str(folder),
            **options,
        )


def end_processes(folder: Path) -> None:
    """Kill what is left of a cluster that this process has started, and wait for it.

    Without a raylet or a GCS, Ray's other processes would remain for up to a minute.

    Args:
        folder: folder of Ray's files of the cluster.
    """
    left = set(_children(folder))
    for child in list(left):
        left.update(_killed(child))
    for process in psutil.process_iter(["cmdline"]):
        # The raylet's children are those of another process when it is gone. Each writes a log, and has this name.
        if "".join(process.info["cmdline"] or [])[:5] == "ray::":
            with suppress(psutil.Error):
                if any(Path(file.path).is_relative_to(folder) for file in process.open_files()):
                    left.update(_killed(process))
    psutil.wait_procs(left, timeout=_KILL_TIMEOUT_S)


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


def _killed(process: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants, which are killed."""
    with suppress(psutil.NoSuchProcess):
        family = [process, *process.children(recursive=True)]
        for member in family:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                member.kill()
        return family
    return []
