"""`ProgressView`: what a sweep reports while it runs.

`PlainView` in `execution/plain_view.py` prints lines for pipes and logs, `LiveView` in `cli/progress.py` draws a live
table in a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dmls_ray.config.grid import Run
from dmls_ray.records.model import RunRecord
from dmls_ray.records.run_events import RunEvent


class ProgressView(Protocol):
    """Receives the events of a sweep and shows them."""

    def __enter__(self) -> ProgressView: ...
    def __exit__(self, *_: object) -> None: ...
    def note(self, text: str) -> None:
        """Show one line of information."""

    def begin(
        self, pending: Sequence[Run], records: Sequence[RunRecord], varied: Sequence[str], *, total: int | None = None
    ) -> None:
        """Start with the runs to come, in their order.

        Args:
            pending: the runs; empty where a searcher chooses them one by one.
            records: the records in the results folder, from which the time left is estimated.
            varied: the fields by which runs are named.
            total: number of runs to come, where they are not known yet.
        """

    def event(self, run: Run, event: RunEvent) -> None:
        """Show that a run has started or ended an epoch."""

    def done(self, run: Run, record: RunRecord) -> None:
        """Show that a run has ended."""
