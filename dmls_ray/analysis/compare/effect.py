"""How one sweep's samples relate to another's: what counts as a sample, and what is made of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import is_time, limit_of, quantity_of
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import (
    MIN_REPEATS,
    Interval,
    are_same,
    clipped,
    compare_apart,
    estimate,
    verdict_of,
)
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import is_loss
from dmls_ray.workloads.registry import metric_direction, registered_metrics

Way = Literal["speed", "amount", "difference"]
"""How B is compared with A: by a ratio of speeds, by a ratio of amounts, or by a difference."""

Unit = Literal["repeat", "session"]

_VERDICTS: dict[Way, tuple[float, str, str]] = {
    "speed": (1, "faster", "slower"), "amount": (1, "more", "less"), "difference": (0, "higher", "lower")
}  # fmt: skip
"""The value that means no difference, and what B is where the interval lies above it, and below."""

IN_THESE_SESSIONS = "different in these sessions"
"""The verdict on what depends on the session, where too few sessions say how much."""


@dataclass(frozen=True)
class Change:
    """The difference between B and A, and a word for it."""

    interval: Interval
    """B / A, of times A / B; B - A where differences are taken."""
    verdict: str
    """faster, slower, more, less, higher or lower; `not distinguished`; `unknown` where there is no interval;
    `IN_THESE_SESSIONS` where it knows nothing of what drifts from one session to the next.
    """


def way_of(measure: str) -> Way:
    """How two sweeps are compared by a metric.

    Times and memory are not paired: A's third repeat ran at another time than B's. Results of training are paired by
    repeat, which has the same seed in both.
    """
    quantity = quantity_of(measure)
    if quantity == "rate" or (quantity == "amount" and measure.endswith(("_s", "_ms_p50"))):
        return "speed"
    return "amount" if quantity == "amount" and not is_loss(measure) else "difference"


def drifts(measure: str) -> bool:
    """Whether the state of the machine may change a metric from one session to the next.

    So do times. A result of training follows from seed, code and data. What else a function reports may be either.
    """
    if registered_metrics().get(measure) is None:
        return metric_direction(measure) == "none"  # neither a loss nor an accuracy
    return is_time(measure) or way_of(measure) == "speed"


def has_sessions(a: Results, b: Results) -> bool:
    """Whether A and B were measured in sessions enough for an interval of what drifts from one to the next."""
    runs = [[record for record in side.records if record.outcome is Outcome.OK] for side in (a, b)]
    return all(len({record.session for record in side}) >= MIN_REPEATS for side in runs)


def unit_of(a: Results, b: Results, measure: str) -> Unit:
    """What counts as one sample of A, and of B.

    Repeats of one session have their processes, and the state of the machine, in common, and so are more similar than
    they are like another session's (Kalibera & Jones, ISMM 2013): where there are sessions enough, each is one sample.
    A process's resident memory hardly varies but from one session to the next, so repeats say nothing of it. That of a
    GPU is what was allocated, which is counted again for each run.
    """
    if way_of(measure) == "difference" and not drifts(measure):
        return "repeat"
    if measure == "peak_mem_mib" and any(
        not record.device.startswith("cuda") and record.isolation == "group"
        for side in (a, b)
        for record in side.records
        if record.outcome is Outcome.OK
    ):
        return "session"
    return "session" if has_sessions(a, b) else "repeat"


def values_of(row: Row, measure: str, unit: Unit = "repeat") -> dict[str, float]:
    """By repeat or by session, of the runs that ended ok; where ratios are taken, those above 0."""
    is_ratio = way_of(measure) != "difference"
    values = row.by_block(measure)
    parts: dict[str, list[float]] = {}
    for record in row.counted:
        if (value := values.get(record.repeat)) is not None and (value > 0 or not is_ratio):
            parts.setdefault(record.session if unit == "session" else str(record.repeat), []).append(value)
    mean = statistics.geometric_mean if is_ratio else statistics.fmean
    # The mean of one is that one, without what rounding a logarithm adds.
    return {name: mean(part) if len(part) > 1 else part[0] for name, part in parts.items()}


def means_of(rows: Sequence[Mapping[str, float]], measure: str) -> dict[str, float]:
    """The mean over configurations of each sample that has them all, geometric where ratios are taken.

    So a block that was slow as a whole counts once, and not as often as there are configurations.
    """
    mean = statistics.fmean if way_of(measure) == "difference" else statistics.geometric_mean
    if len(rows) == 1:
        return dict(rows[0])
    names = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
    return {name: mean([row[name] for row in rows]) for name in names}


def change_of(
    a: Mapping[str, float],
    b: Mapping[str, float],
    measure: str,
    level: float,
    resolution: float = 0.0,
    *,
    unit: Unit = "repeat",
    is_once: bool = False,
) -> Change | None:
    """The difference between the samples of B and of A; None without samples, or without pairs to compare.

    Args:
        a: the samples of A by their names.
        b: those of B.
        measure: what they are of.
        level: confidence level of the interval.
        resolution: the smallest step of the values; 0 where they have none.
        unit: what a sample is.
        is_once: whether equal values of a side say no more than one of them.
    """
    way = way_of(measure)
    null, above, below = _VERDICTS[way]
    is_once = is_once and all(are_same(list(side.values())) for side in (a, b) if side)
    if way == "difference" and unit == "repeat":
        more = [value - a[name] for name, value in b.items() if name in a]
        if not more:
            return None
        value = estimate(more, level=level, resolution=resolution, is_once=is_once)
        interval = clipped(value, limit_of(measure, [*a.values(), *b.values()]))
    elif a and b:
        # Of times the inverse, so that more is faster.
        power = -1 if way == "speed" and quantity_of(measure) != "rate" else 1
        side_a, side_b = ([value**power for value in samples.values()] for samples in (a, b))
        is_ratio = way != "difference"
        interval = compare_apart(
            side_b, side_a, level=level, is_exact=measure in EXACT, is_once=is_once, is_ratio=is_ratio
        )
    else:
        return None
    if drifts(measure) and unit == "repeat":
        above = below = IN_THESE_SESSIONS
    return Change(interval, verdict_of(interval, null, above, below))
