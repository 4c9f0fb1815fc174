"""What Tune is to run: `TuneJobSet`, and `RunQueue`, the runs of a list in their order."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.cluster.messages import Job

JobOf = Callable[[dict[str, Any]], Job]
"""Gives the run of a trial's configuration in Tune, in the driver and in Tune's actor."""


class RunQueue:
    """Runs in the order in which they are to be run. Whether more follow may depend on how those before them ended.

    Args:
        run_ids: the first runs.
        more: called each time all before have ended; returns the next runs, or none if those were all.
    """

    def __init__(self, run_ids: Iterable[str], more: Callable[[], Sequence[str]] | None = None) -> None:
        self._waiting = deque(run_ids)
        self._more = more

    def take(self) -> str | None:
        """The next run; None if there is none left."""
        if not self._waiting and self._more is not None:
            self._waiting.extend(self._more())
        if not self._waiting:
            return None
        return self._waiting.popleft()


@dataclass(frozen=True, kw_only=True)
class TuneJobSet:
    """What Tune is to run."""

    job_of: JobOf
    queue: RunQueue | None = None
    """The runs; None where a searcher proposes them."""
    samples: int = -1
    """How many runs a searcher may propose; -1: until it has no more."""
    at_once: int = 1
    """How many trials may be under way at the same time."""
    searcher: Any = None
    scheduler: Any = None
    metric: str = ""
    """What the searcher and the scheduler go by; empty where there is neither."""
    earlier: Mapping[str, float | None] = field(default_factory=dict)
    """By run: the metric of what has ended earlier, if a searcher should propose it again."""


def listed(jobs: Sequence[Job], queue: RunQueue | None = None) -> TuneJobSet:
    """These runs in the order of a queue, by default all in the order of the list, one at a time."""
    by_id = {job.run_id: job for job in jobs}
    return TuneJobSet(job_of=functools.partial(_of_list, by_id), queue=queue or RunQueue(by_id))


def _of_list(jobs: dict[str, Job], config: dict[str, Any]) -> Job:
    return jobs[config["run_id"]]
