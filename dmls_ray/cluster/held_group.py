"""`HeldGroup`: a worker group that serves several calls, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from dmls_ray.cluster.connect import RaySession, cluster_at
from dmls_ray.config.options import Options

if TYPE_CHECKING:
    from dmls_ray.cluster.worker_group import WorkerGroup  # it loads Ray


class HeldGroup:
    """Keeps Ray and the ranks of one call for the next, as in a search for settings: their start takes seconds.

    A context manager, at whose end they end. It starts nothing by itself: the first call that can be run does.

    Args:
        options: where Ray is, and what it shows.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._group: WorkerGroup | None = None
        self._ray = ExitStack()
        self._is_connected = False

    def __enter__(self) -> HeldGroup:
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._end_group(*error)
        finally:
            self._ray.__exit__(*error)

    def connect(self) -> None:
        """Join or start Ray, unless an earlier call has.

        Raises:
            ClusterError: as `RaySession.connected`.
        """
        if self._is_connected:
            return
        options = self._options
        session = RaySession(cluster_at(options.address), dashboard=options.dashboard, verbose=options.verbose)
        self._ray.enter_context(session.connected())
        self._is_connected = True

    @property
    def has_ranks(self) -> bool:
        """Whether ranks are there."""
        return self._group is not None

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
