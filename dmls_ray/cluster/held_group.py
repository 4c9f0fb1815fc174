"""`HeldGroup`: a worker group that serves several calls, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from dmls_ray.cluster.connect import RaySession, cluster_at
from dmls_ray.config.options import Options

if TYPE_CHECKING:
    from dmls_ray.cluster.worker_group import WorkerGroup  # it loads Ray


class HeldGroup:
    """Keeps the ranks of one call for the next, as in a search for settings: their start takes seconds.

    A context manager, at whose end the ranks end.
    """

    def __init__(self) -> None:
        self._group: WorkerGroup | None = None

    def __enter__(self) -> HeldGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.__exit__(kind, error, trace)

    @property
    def has_ranks(self) -> bool:
        """Whether ranks are there."""
        return self._group is not None

    @contextmanager
    def serving(self, wanted: WorkerGroup) -> Iterator[WorkerGroup]:
        """The ranks that are there, if they serve as those of another group would; else these, from now on."""
        if self._group is None or not self._group.serves_as(wanted):
            self.__exit__(None, None, None)
            self._group = wanted.__enter__()
        yield self._group


@contextmanager
def held_ranks(options: Options) -> Iterator[HeldGroup]:
    """Ray, with the ranks of the first call for all that follow."""
    session = RaySession(cluster_at(options.address), dashboard=options.dashboard, verbose=options.verbose)
    with session.connected(), HeldGroup() as held:
        yield held
