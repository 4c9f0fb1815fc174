"""Start a Ray cluster on this machine, in a folder with a short path."""

from __future__ import annotations

import os
import sys
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
from dmls_ray.util.temporary_folder import OwnedFolder, TemporaryFolder, remove_abandoned
from dmls_ray.util.text import first_line

LOOPBACK = "127.0.0.1"


_PARTS = {"raylet": "Ray's node process (raylet)", "gcs_server": "Ray's control process (GCS)"}
"""The processes that a cluster cannot do without."""

_KILL_TIMEOUT_S = 3.0
"""How long a process that was killed may take to end."""


class LocalCluster:
    """A cluster that was started here.

    Args:
        session: folder of Ray's files of the cluster.
        folder: the folder to remove with the cluster; None to keep it.
    """

    def __init__(self, session: Path, folder: OwnedFolder | None) -> None:
        self.session, self._folder = session, folder
        self.parts = {_PARTS[child.name()]: child for child in _children(session) if child.name() in _PARTS}
        """Processes that the cluster cannot do without, by their name for a person."""

    def keep_files(self) -> None:
        """Let Ray's files outlive the cluster, since its logs may say what failed."""
        if self._folder is not None:
            self._folder.keep()
            self._folder = None

    def remove_files(self) -> None:
        """Remove Ray's files, unless they are kept."""
        if self._folder is not None:
            self._folder.remove()


def temporary_folder_of_ray() -> tuple[str, Path]:
    """Where Ray puts its files by default: the variable that names the folder, empty for none, and the folder."""
    for name in ("RAY_TMPDIR", "TMPDIR") if sys.platform == "linux" else ("RAY_TMPDIR",):
        if name in os.environ:
            return name, Path(os.environ[name])
    return "", Path("/tmp")


def start_cluster(*, keep_files: bool, **options: Any) -> LocalCluster:
    """Start Ray for this machine alone; nothing outside can reach it.

    Args:
        keep_files: whether Ray's files outlive the cluster.
        options: further ones of ray.init.

    Raises:
        ClusterError: Ray cannot be started.
        ClusterLostError: Ray did not start in time; another start may succeed.
    """
    own: OwnedFolder | None = _own_folder()
    parent = temporary_folder_of_ray()[1] / "ray" if own is None else own.path
    if own is not None:
        options["_temp_dir"] = str(own.path)
    try:
        session = _start(parent, options)
    except ClusterError:
        if own is not None:
            own.keep()
        raise
    if keep_files:
        if own is not None:
            own.keep()
        return LocalCluster(session, None)
    if own is None:
        # By default Ray keeps the logs of every cluster, also after a sweep without a failure.
        remove_abandoned(parent, "session_*")
        own = OwnedFolder(session)
    return LocalCluster(session, own)


def _own_folder() -> TemporaryFolder | None:
    """A folder with a short path, where sockets in Ray's usual one would have too long a path.

    Raises:
        ClusterError: RAY_TMPDIR is too long, or there is no other folder.
    """
    variable, folder = temporary_folder_of_ray()
    room = room_above(f"/ray/session_0000-00-00_00-00-00_000000_{os.getpid()}/sockets/plasma_store")
    if len(os.fsencode(folder)) <= room:
        return None
    if variable != "RAY_TMPDIR":
        for parent in short_folders():
            return TemporaryFolder("ray", parent)
    raise ClusterError(
        f"{variable}={folder} has {len(os.fsencode(folder))} bytes, and the paths of Ray's sockets in it would be too "
        f"long for the system; name a folder of {room} bytes or less in RAY_TMPDIR."
    )


def _start(parent: Path, options: Mapping[str, Any]) -> Path:
    import ray

    try:
        with loopback_only():
            started = ray.init(
                address="local",
                num_cpus=joblib.cpu_count(),
                # Ray also counts those that PyTorch cannot use.
                num_gpus=usable_gpus(),
                dashboard_host=LOOPBACK,
                _node_ip_address=LOOPBACK,
                **options,
            )
    except (OSError, ValueError) as error:
        raise ClusterError(f"Ray could not be started on this machine ({first_line(error)}).") from error
    except Exception as error:  # a bare Exception, where Ray's processes need more than 30 s
        for session in parent.glob(f"session_*_{os.getpid()}"):
            end_processes(session)
        reason = first_line(error).rstrip(".")
        raise ClusterLostError(f"Ray could not be started in time, as on a busy machine ({reason})") from error
    return Path(started.address_info["session_dir"])


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
    psutil.wait_procs(left, timeout=_KILL_TIMEOUT_S)


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
