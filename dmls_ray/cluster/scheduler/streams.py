"""`EventStreams`: the events of each run, kept until the driver has them all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from dmls_ray.records.run_events import RunAborted, RunEvent, RunUnknown, is_last


@dataclass
class _Stream:
    """Events of one run. A Trainable that dies is followed by another, which reads them from the start."""

    events: list[RunEvent] = field(default_factory=list)
    sent: int = 0
    generation: int = 0
    """How many Trainables have died while reading: their pending reads get nothing."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: RunEvent) -> None:
        self.events.append(event)
        self.news.set()

    def rewind(self) -> None:
        self.sent = 0
        self.generation += 1
        if self.events:
            self.news.set()


class EventStreams:
    """The events of all runs that the driver still follows."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._owners: dict[str, str] = {}
        """Owner of each run that was ever submitted."""

    def claim(self, run_id: str, owner: str) -> bool:
        """Register the owner of a run; returns whether the run belongs to it."""
        return self._owners.setdefault(run_id, owner) == owner

    def open(self, run_id: str) -> bool:
        """Open the stream of a run, or rewind it if it is open; returns whether it is new."""
        if run_id in self._streams:
            self._streams[run_id].rewind()
            return False
        self._streams[run_id] = _Stream()
        return True

    def add(self, run_id: str, event: RunEvent) -> None:
        """Add an event of a run."""
        self._streams[run_id].add(event)

    def abort(self, reason: str) -> None:
        """End all streams that have not ended."""
        for stream in self._streams.values():
            if not stream.events or not is_last(stream.events[-1]):
                stream.add(RunAborted(reason=reason))

    def forget(self, run_id: str) -> None:
        """Drop the events of a run."""
        self._streams.pop(run_id, None)

    async def read(self, run_id: str) -> list[RunEvent]:
        """Events since the last call, as soon as there are some."""
        stream = self._streams.get(run_id)
        if stream is None:
            return [RunUnknown()]
        generation = stream.generation
        await stream.news.wait()
        if stream.generation != generation:
            return []
        events = stream.events[stream.sent :]
        stream.sent = len(stream.events)
        stream.news.clear()
        return events
