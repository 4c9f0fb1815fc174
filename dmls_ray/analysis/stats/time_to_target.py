"""Time to a target accuracy, as a quantity of which some runs only say: not yet."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmls_ray.analysis.stats.formatting import SECONDS, NumberFormat, format_interval
from dmls_ray.analysis.stats.intervals import Interval, estimate
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome

MIN_CENSORED = 5
"""Fewer runs, some of which have not got there, have no interval: it would hold the truth too seldom."""

_CUT_SHORT = (Outcome.KILLED, Outcome.TIMEOUT, Outcome.ERROR)


@dataclass(frozen=True)
class TimeToTarget:
    """The time by which half of the runs have reached a test accuracy: their median where all have, else the
    Kaplan-Meier estimate (JASA 53, 1958).
    """

    target: float
    n: int
    """Runs that tried."""
    reached: int
    """Runs that got there."""
    median: float | None
    """Seconds from assignment, set-up and tests included; None: not yet."""
    low: float | None
    """Ends of its 95% interval (where some have not: Brookmeyer & Crowley, Biometrics 38, 1982, on log-log survival);
    None with too few runs, or where they do not bound it.
    """
    high: float | None

    def __str__(self) -> str:
        return self.describe(SECONDS)

    def describe(self, form: NumberFormat) -> str:
        """In words: with its interval, and how many runs got there where not all have."""
        count = f" ({self.reached} of {self.n})" if self.reached < self.n else ""
        if self.median is None:
            return f"not yet{count}"
        if self.low is None and self.high is None:
            return f"{form(self.median)}{count}"
        interval = Interval(self.median, self.low or 0.0, math.inf if self.high is None else self.high)
        return f"{format_interval(interval, form)}{count}"


def time_to_target(records: Sequence[RunRecord], target: float | None = None) -> TimeToTarget | None:
    """When runs of one trial reach a test accuracy; None where there is no target, or no run that tried.

    A run that was cut short has not reached it yet by then. One that used up its epochs without it, diverged, or did
    not fit into memory never will, so it counts as waiting for as long as any. A run that ended ok and reports no test
    accuracy by epoch does not count: when it reached the target is unknown.

    Args:
        records: the runs; what was skipped, or searched, does not count.
        target: from 0 to 1; without it, target_accuracy of the runs.
    """
    tried = [record for record in records if record.mode == "bench" and _tells(record)]
    known = {record.config.get("target_accuracy") for record in tried} - {None}
    if target is None and len(known) == 1:
        (target,) = known
    if target is None or not tried:
        return None
    times = [_seconds_to(record, target) for record in tried]
    reached = [time for time in times if time is not None]
    if not reached:
        return TimeToTarget(target, len(tried), 0, None, None, None)
    longest = max([*reached, *(record.total_s or 0.0 for record in tried)])
    waited = [
        (record.total_s or 0.0) if record.outcome in _CUT_SHORT else longest
        for record, time in zip(tried, times, strict=True)
        if time is None
    ]
    return TimeToTarget(target, len(tried), len(reached), *_half(reached, waited))


def _tells(record: RunRecord) -> bool:
    if record.outcome is not Outcome.OK:
        return record.outcome is not Outcome.SKIPPED
    return record.target_s is not None or any(epoch.test_accuracy is not None for epoch in record.epochs)


def _seconds_to(record: RunRecord, target: float) -> float | None:
    """Seconds from assignment to the end of the first epoch that reached the target."""
    if record.config.get("target_accuracy") == target and record.target_s is not None:
        return record.target_s
    gone = record.setup_s or 0.0
    for epoch in record.epochs:
        gone += epoch.warmup_s + epoch.train_s + epoch.eval_s
        if epoch.test_accuracy is not None and epoch.test_accuracy >= target:
            return gone
    return None


def _half(reached: Sequence[float], waited: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """When half have reached it, and the ends of its interval."""
    if not waited:
        times = estimate(reached, "amount")
        return times.median, times.low, times.high
    from scipy.stats import CensoredData, ecdf  # takes half a second to load

    survival = ecdf(CensoredData(uncensored=reached, right=waited)).sf
    median = _first(survival.quantiles, survival.probabilities)
    if 2 * len(reached) < len(reached) + len(waited):
        # Runs that were cut short might have reached it, but fewer than half were seen to.
        return None, None, None
    if len(reached) + len(waited) < MIN_CENSORED:
        return median, None, None
    with warnings.catch_warnings():
        # The formula has no ends where all or none are left; there is nothing to be said there, and nothing is.
        warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
        interval = survival.confidence_interval(0.95, method="log-log")
    # A survival that may already be below a half bounds the median from below, and the other way round.
    low, high = (_first(end.quantiles, end.probabilities) for end in (interval.low, interval.high))
    return median, low, high


def _first(times: np.ndarray, survival: np.ndarray) -> float | None:
    below = times[survival <= 0.5]
    return float(below[0]) if below.size else None
