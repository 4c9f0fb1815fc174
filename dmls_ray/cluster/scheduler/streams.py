"""`EventStreams`: the events of each run, kept until the driver has them all."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from dmls_ray.records.run_events import RunAborted, RunEvent, is_last

NEWS_INTERVAL_S = 10.0
"""How long a reader waits for events. An answer without events shows that the scheduler is alive."""


@dataclass
class _Stream:
    """Events of one run that were not read yet."""

    events: list[RunEvent] = field(default_factory=list)
    has_ended: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: RunEvent) -> None:
        self.events.append(event)
        self.has_ended = is_last(event)
        self.news.set()


class EventStreams:
    """The events of all runs that the driver still follows."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._owners: dict[str, str] = {}
        """Owner of each run that was ever submitted."""

    def open(self, run_id: str, owner: str) -> bool:
        """Open the stream of a run; returns False if the run belongs to another owner."""
        if self._owners.setdefault(run_id, owner) != owner:
            return False
        self._streams[run_id] = _Stream()
        return True

    def add(self, run_id: str, event: RunEvent) -> None:
        """Add an event of a run."""
        self._streams[run_id].add(event)

    def abort(self, event: RunAborted) -> None:
        """End all streams that have not ended."""
        for stream in self._streams.values():
            if not stream.has_ended:
                stream.add(event)

    def forget(self, run_id: str) -> None:
        """Drop the events of a run."""
        self._streams.pop(run_id, None)

    async def read(self, run_id: str) -> list[RunEvent]:
        """Events since the last call, as soon as there are some; none after `NEWS_INTERVAL_S`."""
        stream = self._streams[run_id]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stream.news.wait(), NEWS_INTERVAL_S)
        events, stream.events = stream.events, []
        stream.news.clear()
        return events
