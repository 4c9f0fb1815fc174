"""How long runs took, and how long one more will take."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome


class Durations:
    """How long runs took, by trial."""

    def __init__(self, records: Iterable[RunRecord] = ()) -> None:
        self._all: list[float] = []
        self._of: dict[str, list[float]] = {}
        for record in records:
            self.add(record)

    def add(self, record: RunRecord) -> None:
        """Add a run that has ended; only runs that ended ok count."""
        if record.outcome is Outcome.OK and "total_s" in record.metrics:
            seconds = seconds_of_run(record)
            bisect.insort(self._all, seconds)
            bisect.insort(self._of.setdefault(record.trial_id, []), seconds)

    def expected_s(self, trial_id: str) -> float | None:
        """Seconds that a run will take: the median of its trial's, else of all; None where there are none."""
        measured = self._of.get(trial_id) or self._all
        return (measured[(len(measured) - 1) // 2] + measured[len(measured) // 2]) / 2 if measured else None


def seconds_of_run(record: RunRecord) -> float:
    """Seconds of a run with what the sweep needs besides: memory measured, and the time since the run before."""
    return sum(record.metrics.get(name, 0.0) for name in ("total_s", "instruments_s", "overhead_s"))
