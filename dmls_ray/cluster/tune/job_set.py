"""`TuneJobSet`: what Tune is to run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.cluster.messages import Job

JobOf = Callable[[dict[str, Any]], Job]
"""Gives the run of a trial's configuration in Tune, in the driver and in Tune's actor."""


@dataclass(frozen=True, kw_only=True)
class TuneJobSet:
    """What Tune is to run."""

    job_of: JobOf
    run_ids: Iterator[str] | None = None
    """The runs, in their order; None where a searcher proposes them."""
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


def listed(jobs: Sequence[Job], run_ids: Iterator[str] | None = None) -> TuneJobSet:
    """Runs one at a time, in the order of the list or in another.

    Args:
        jobs: all that may follow.
        run_ids: the runs in their order; it is asked for the next one when those before have ended.
    """
    by_id = {job.run_id: job for job in jobs}
    return TuneJobSet(job_of=functools.partial(_of_list, by_id), run_ids=run_ids or iter(by_id))


def _of_list(jobs: dict[str, Job], config: dict[str, Any]) -> Job:
    return jobs[config["run_id"]]
