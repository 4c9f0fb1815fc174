"""`HeldGroup`: a worker group that serves several calls, one after the other, and the one that this process keeps."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from dmls_ray.cluster.connect import RaySession, cluster_at
from dmls_ray.cluster.joining import lost_cluster
from dmls_ray.cluster.resources import Resources, cluster_resources
from dmls_ray.config.options import Options
from dmls_ray.util.errors import ClusterLostError

if TYPE_CHECKING:
    from dmls_ray.cluster.worker_group import WorkerGroup  # it loads Ray

IDLE_S = 600.0
"""How long ranks stay that no call uses."""


class HeldGroup:
    """Keeps Ray and the ranks of one call for the next: their start takes seconds.

    A context manager, at whose end they end. It starts nothing by itself: the first call that can be run does.

    Args:
        options: where Ray is, and what it shows.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._group: WorkerGroup | None = None
        self._ray = ExitStack()
        self._session: RaySession | None = None
        self._environment: Mapping[str, str] = {}
        """That with which the ranks start."""
        self._on_lost: Callable[[str], None] = lambda reason: None

    def __enter__(self) -> HeldGroup:
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._end_group(*error)
        finally:
            self._session = None
            self._ray.__exit__(*error)

    @property
    def joins(self) -> str | None:
        """The cluster that the next call joins; None if that is one of its own, which it may have to start."""
        if self._session is not None and self._session.is_private:
            return None
        return cluster_at(self._options.address)

    @contextmanager
    def connected(self, on_lost: Callable[[str], None]) -> Iterator[tuple[RaySession, Resources]]:
        """Join or start Ray, unless an earlier call has; it stays.

        Args:
            on_lost: as of `RaySession`, while the block runs.

        Raises:
            ClusterError: as `RaySession.connected`.
            ClusterLostError: the block has failed by a call to Ray.
        """
        self._on_lost = on_lost
        if self._session is None:
            options = self._options
            session = RaySession(
                cluster_at(options.address), dashboard=options.dashboard, verbose=options.verbose,
                on_lost=lambda reason: self._on_lost(reason),
            )  # fmt: skip
            self._ray.enter_context(session.connected())
            self._session, self._environment = session, dict(os.environ)
        try:
            yield self._session, cluster_resources()
        except Exception as error:
            lost = lost_cluster(error)
            if lost is None or lost is error:
                raise
            raise lost from error

    @property
    def has_ranks(self) -> bool:
        """Whether ranks are there."""
        return self._group is not None

    @property
    def is_in_the_way(self) -> bool:
        """Whether the ranks hold what others may ask for: GPUs, or a part of a cluster that was joined."""
        if self._session is None or self._group is None:
            return False
        return not self._session.is_private or self._group.holds_gpus

    def suits(self, options: Options) -> bool:
        """Whether a call with these options, in the environment as it is now, finds what it would start."""
        if self._session is None:
            return False
        try:
            self._session.check()
            if self._group is not None:
                self._group.check()
        except ClusterLostError:
            return False
        kind = [(given.address, given.dashboard, given.verbose) for given in (self._options, options)]
        return kind[0] == kind[1] and self._environment == dict(os.environ)

    @contextmanager
    def serving(self, wanted: WorkerGroup) -> Iterator[WorkerGroup]:
        """The ranks that are there, if they serve as those of another group would; else these, from now on."""
        if self._group is None or not self._group.serves_as(wanted):
            self._end_group(None, None, None)
            self._group = wanted.__enter__()
        yield self._group

    def _end_group(self, *error: Any) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.__exit__(*error)


class _Kept:
    """The ranks that this process keeps between calls."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held: HeldGroup | None = None
        self._timer: threading.Timer | None = None
        self._is_registered = False

    @contextmanager
    def lend(self, options: Options, keep: bool | None) -> Iterator[HeldGroup]:
        """The ranks for a call, which stay as it says."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._held is None or not self._held.suits(options):
                self.close()
                self._held = HeldGroup(options)
            try:
                yield self._held
            except BaseException as error:
                held, self._held = self._held, None
                held.__exit__(type(error), error, error.__traceback__)
                raise
            if keep is False or (keep is None and self._held.is_in_the_way):
                self.close()
                return
            if not self._is_registered and "ray" in sys.modules:
                atexit.register(self.close)  # after Ray's own handler, so that it runs before
                self._is_registered = True
            self._timer = threading.Timer(IDLE_S, self._close_if_idle)
            self._timer.daemon = True
            self._timer.start()

    def _close_if_idle(self) -> None:
        with self._lock:
            # Another call may have begun and ended while this thread waited.
            if self._timer is threading.current_thread():
                self.close()

    def close(self) -> None:
        """End what is kept."""
        with self._lock:
            held, self._held = self._held, None
            if held is not None:
                held.__exit__(None, None, None)


_kept = _Kept()


@contextmanager
def kept_group(options: Options, keep: bool | None) -> Iterator[HeldGroup]:
    """The ranks of the calls of this process.

    Args:
        options: those of the call.
        keep: whether ranks stay after it, for `IDLE_S` at most; None: if they are in the way of nobody.
    """
    with _kept.lend(options, keep) as held:
        yield held


def close() -> None:
    """End the ranks that `sweep` has kept in this process for its next call, and the Ray that it has started."""
    _kept.close()
