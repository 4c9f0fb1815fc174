"""`RunClock`: the time of a run on one rank, without that of instruments."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class RunClock:
    """Seconds since a process received a run: making the process group is part of the run."""

    def __init__(self) -> None:
        self.start()

    def start(self, instruments_s: float = 0.0) -> None:
        """The run is received now, or was before this many seconds of instruments, which precede it."""
        self.assigned_at = time.perf_counter() - instruments_s
        """By time.perf_counter of this machine."""
        self.instruments_s = instruments_s
        """Seconds since then of measurements and preparations, which are no part of the run."""

    @property
    def total_s(self) -> float:
        """Seconds since the run was assigned, without those of instruments."""
        return time.perf_counter() - self.assigned_at - self.instruments_s

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """The work of an instrument, which no time of the run contains."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.instruments_s += time.perf_counter() - began
