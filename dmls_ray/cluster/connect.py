"""Reach a Ray cluster, or start one here, for the duration of one sweep."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil

from dmls_ray.cluster.compat import (
    connect_by_itself,
    loopback_only,
    prestart_autoscaling_coordinator,
    program_of_copies,
    read_token_mode,
    show_cluster_messages,
)
from dmls_ray.cluster.environment import set_environment
from dmls_ray.cluster.head import HeadWatch
from dmls_ray.cluster.joining import (
    MODE,
    cluster_of_this_machine,
    join_cluster,
    keep_token_private,
    lost_cluster,
    no_answer,
)
from dmls_ray.cluster.local import LocalCluster, end_processes, start_cluster
from dmls_ray.cluster.resources import Resources, cluster_resources
from dmls_ray.cluster.templates import drop_templates
from dmls_ray.util.errors import ClusterError, ClusterLostError
from dmls_ray.util.importing import missing_extra
from dmls_ray.util.standby import Standby, ray_of_standby, used_standby, variables_of_terminal

NAMESPACE = "dmls_ray"
"""Ray namespace of everything that a sweep names."""


def cluster_at(address: str | None) -> str | None:
    """The running cluster to join; None if a new one must be started.

    It is that which this process is connected to (a notebook, say), else the address given, else RAY_ADDRESS, else
    that of a cluster that this user, or root, runs on this machine with `ray start`. `auto` is one of these last two,
    and `local` none.

    Args:
        address: as given by a flag.

    Raises:
        ClusterError: `auto` was given, and there is none.
    """
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return "this process's own connection"
    asked = [given for given in (address, os.environ.get("RAY_ADDRESS")) if given]
    named = next((given for given in asked if given != "auto"), None)
    if named == "local":
        return None
    if named is not None:
        return named
    started = cluster_of_this_machine()
    if asked and started is None:
        raise ClusterError("--address auto finds no cluster on this machine; start one with ray start --head.")
    return started


class RaySession:
    """A Ray cluster for the duration of one sweep: joined, or for the sweep alone.

    The latter is that of a standby, where this process uses one that no other command uses; else it is started here,
    and ends with the sweep.

    Args:
        joined: address of the cluster to join; None for one of its own.
        dashboard: whether Ray shows its dashboard.
        verbose: whether Ray and the ranks print.
        on_lost: called with the reason when the head of a cluster that was joined does not answer any more. Calls to
            Ray that are under way then may wait for ever, so that nothing is raised.

    Raises:
        ClusterError: the dashboard of Ray is not installed.
    """

    def __init__(
        self,
        joined: str | None,
        *,
        dashboard: bool,
        verbose: bool,
        on_lost: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.is_private = joined is None
        if dashboard and self.is_private and (reason := missing_extra("aiohttp_cors", "dashboard", "--dashboard")):
            raise ClusterError(reason)
        self._joined, self._dashboard, self._verbose = joined, dashboard, verbose
        self._cluster: LocalCluster | None = None
        """The cluster, if it was started here."""
        self._parts: Mapping[str, psutil.Process] = {}
        """Processes of this machine that the cluster cannot do without, by their name for a person."""
        self._head: HeadWatch | None = None
        """That of a cluster that was joined."""
        self._on_lost = on_lost
        self._standby = ExitStack()
        """Holds the Ray of a standby."""

    @contextmanager
    def connected(self) -> Iterator[Resources]:
        """Join a cluster, or start one, and yield its resources."""
        set_environment()
        # The imports take as long as the start of Ray, so they run at the same time.
        loading = threading.Thread(
            target=importlib.import_module, args=("dmls_ray.cluster.tune.run_jobs",), daemon=True
        )
        loading.start()
        import ray

        # Threads of a sweep that ends early may outlive its cluster: each of their calls would start another one.
        connect_by_itself(False)
        is_users = ray.is_initialized()
        on_sigterm = signal.getsignal(signal.SIGTERM)
        is_lost = False
        try:
            self._cluster = self._connect()
            if self._cluster is None:
                self._head = HeadWatch(ray.get_runtime_context().gcs_address, self._on_lost)
            if threading.current_thread() is threading.main_thread():
                # Ray installs a handler that would end the process at once.
                signal.signal(signal.SIGTERM, on_sigterm)
            prestart_autoscaling_coordinator()
            loading.join()
            # It logs a traceback for each death of its actor; what ends a sweep is raised.
            logging.getLogger("ray.tune").setLevel(logging.INFO if self._verbose else logging.CRITICAL)
            yield cluster_resources()
            connect_by_itself(True)
            if self._cluster is not None:
                self._cluster.end_workers()
        except BaseException as error:
            lost = lost_cluster(error)
            is_lost = lost is not None
            if self._cluster is not None:
                # An orderly end waits for a process that has died, or was stopped together with the sweep. Where none
                # has, Ray ends first: it would end this process, too, when it misses the raylet.
                if self._cluster.is_whole:
                    ray.shutdown()
                end_processes(self._cluster.folder.path)
                if isinstance(error, Exception) and not is_lost:
                    # Ray's logs may say what failed.
                    self._cluster.folder.keep()
            if lost is not None and lost is not error:
                raise lost from error
            raise
        finally:
            if self._head is not None:
                self._head.end()
            # Without its head, a connection to a cluster that was not started here cannot be ended.
            if not is_users and (self._cluster is not None or not is_lost):
                ray.shutdown()
                show_cluster_messages(True)
            if self._cluster is not None:
                self._cluster.remove()
            self._standby.close()

    def _connect(self) -> LocalCluster | None:
        """Join the cluster, or start one here; returns a cluster that was started.

        Raises:
            ClusterError: the cluster cannot be started, reached or joined, or a token is not kept private.
        """
        import ray

        if ray.is_initialized():
            if no_answer(ray.get_runtime_context().gcs_address) is not None:
                raise ClusterError(
                    "This process is connected to a Ray cluster whose head does not answer. Start Python again, and "
                    "give the same command once the head is back."
                )
            return None  # a notebook's own connection, which stays its own

        # Ray announces its authentication through this logger before it reads logging_level.
        level = logging.INFO if self._verbose else logging.ERROR
        logging.getLogger("ray").setLevel(level)
        common: dict[str, Any] = {
            "namespace": NAMESPACE,
            "log_to_driver": self._verbose,
            "logging_level": level,
            "configure_logging": self._verbose,
        }
        keep_token_private(make=self.is_private)
        started = None
        if self._joined is not None:
            drop_templates()
            join_cluster(self._joined, **_copies_of_standby(self._joined), **common)
        elif standby := self._free_standby():
            self._parts = join_standby(standby, **common)
        else:
            started = start_cluster(include_dashboard=self._dashboard, **common)
            self._parts = started.parts
            if self._verbose:
                started.folder.keep()
        show_cluster_messages(self._verbose)
        return started

    def _free_standby(self) -> Standby | None:
        """The standby whose Ray this sweep uses alone from now on; None without one."""
        if self._dashboard or self._verbose:
            return None  # its Ray has no dashboard, and passes on no logs
        return self._standby.enter_context(ray_of_standby())

    def end_workers(self) -> bool:
        """End the worker processes of a cluster that was started here, if Ray can see it; returns whether it does."""
        if self._cluster is None or not self._cluster.is_whole:
            return False
        self._cluster.end_workers()
        return True

    def check(self) -> bool:
        """Check that the cluster is there.

        Returns:
            Whether its head answers now. While it does not, a call to Ray may wait for ever.

        Raises:
            ClusterLostError: a process of a cluster that was started here has ended, or the head of one that was joined
                does not listen any more.
        """
        for part, process in self._parts.items():
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                raise ClusterLostError(f"{part} has ended")
        return self._head is None or self._head.check()


def _copies_of_standby(joined: str) -> dict[str, Any]:
    """Options of ray.init by which worker processes are copies of what a standby holds on the cluster to join."""
    standby = used_standby()
    if standby is None or standby.joined != joined:
        return {}
    return {"runtime_env": {"py_executable": program_of_copies(standby.templates)}}


def join_standby(standby: Standby, **options: Any) -> dict[str, psutil.Process]:
    """Connect this process to the Ray of a standby; returns what that cannot do without.

    Args:
        standby: that of which this process is a copy.
        options: further ones of ray.init.

    Raises:
        ClusterLostError: it has ended.
    """
    # As Ray itself sets it where it starts a cluster.
    os.environ.setdefault(MODE, "token")
    read_token_mode()
    try:
        with loopback_only():
            join_cluster(standby.address, runtime_env={"env_vars": variables_of_terminal()}, **options)
        return {part: psutil.Process(pid) for part, pid in standby.parts.items()}
    except (ClusterError, psutil.Error) as error:
        raise ClusterLostError("The Ray of dmls-ray up has ended") from error
