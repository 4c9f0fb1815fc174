"""`EventStreams`: the events of each run, kept until the driver has them all."""

from __future__ import annotations

import asyncio
import contextlib

from dmls_ray.records.run_events import RunAborted, RunEvent, is_last

NEWS_INTERVAL_S = 10.0
"""How long a reader waits for events. An answer without events shows that the scheduler is alive."""


class EventStreams:
    """The events of all runs that the driver still follows."""

    def __init__(self) -> None:
        self._unread: dict[str, asyncio.Queue[RunEvent]] = {}
        self._under_way: set[str] = set()
        """Runs whose last event is to come."""
        self._owners: dict[str, str] = {}
        """Owner of each run that was ever submitted."""

    def open(self, run_id: str, owner: str) -> bool:
        """Open the stream of a run; returns False if the run belongs to another owner."""
        if self._owners.setdefault(run_id, owner) != owner:
            return False
        self._unread[run_id] = asyncio.Queue()
        self._under_way.add(run_id)
        return True

    def add(self, run_id: str, event: RunEvent) -> None:
        """Add an event of a run."""
        self._unread[run_id].put_nowait(event)
        if is_last(event):
            self._under_way.discard(run_id)

    def abort(self, event: RunAborted) -> None:
        """End all streams that have not ended."""
        for run_id in list(self._under_way):
            self.add(run_id, event)

    def forget(self, run_id: str) -> None:
        """Drop the events of a run."""
        self._unread.pop(run_id, None)
        self._under_way.discard(run_id)

    async def read(self, run_id: str) -> list[RunEvent]:
        """Events since the last call, as soon as there are some; none after `NEWS_INTERVAL_S`."""
        unread, events = self._unread[run_id], list[RunEvent]()
        with contextlib.suppress(TimeoutError):
            events.append(await asyncio.wait_for(unread.get(), NEWS_INTERVAL_S))
        while not unread.empty():
            events.append(unread.get_nowait())
        return events
