"""How one sweep's samples of a metric relate to another's: what counts as a sample, and what is made of them."""

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
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord
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


def way_of(metric: str) -> Way:
    """How two sweeps are compared by a metric.

    Times and memory are not paired: A's third repeat ran at another time than B's. Results of training are paired by
    repeat, which has the same seed in both.
    """
    quantity = quantity_of(metric)
    if quantity == "rate":
        return "speed"
    if quantity != "amount":
        return "difference"
    if metric.endswith(("_s", "_ms_p50")):
        return "speed"
    return "difference" if is_loss(metric) else "amount"


def drifts(metric: str) -> bool:
    """Whether the state of the machine may change a metric from one session to the next.

    So do times. A result of training follows from seed, code and data. What else a function reports may be either.
    """
    if metric not in registered_metrics():
        return metric_direction(metric) == "none"  # neither a loss nor an accuracy
    return is_time(metric) or way_of(metric) == "speed"


def unit_of(a: Results, b: Results, metric: str) -> Unit:
    """What counts as one sample of A, and of B.

    Repeats of one session have their processes, and the state of the machine, in common, and so are more similar than
    they are like another session's (Kalibera & Jones, ISMM 2013): where there are sessions enough, each is one sample.
    A process's resident memory hardly varies but from one session to the next, so repeats say nothing of it. That of a
    GPU is what was allocated, which is counted again for each run.
    """
    if way_of(metric) == "difference" and not drifts(metric):
        return "repeat"
    sides = [_ended_ok(a), _ended_ok(b)]
    if metric == "peak_mem_mib" and any(map(_is_resident, [*sides[0], *sides[1]])):
        return "session"
    sessions = [{record.session for record in side} for side in sides]
    return "session" if min(map(len, sessions)) >= MIN_REPEATS else "repeat"


def _ended_ok(results: Results) -> list[RunRecord]:
    return [record for record in results.records if record.outcome is Outcome.OK]


def _is_resident(record: RunRecord) -> bool:
    """Whether peak_mem_mib of a run is the resident memory of processes that serve a whole session."""
    return record.isolation == "group" and not record.device.startswith("cuda")


def values_of(row: Row, metric: str, unit: Unit = "repeat") -> dict[str, float]:
    """By repeat or by session, of the runs that ended ok; where ratios are taken, those above 0."""
    is_ratio = way_of(metric) != "difference"
    by_block = row.by_block(metric)
    samples: dict[str, list[float]] = {}
    for record in row.counted:
        value = by_block.get(record.repeat)
        if value is None or (is_ratio and value <= 0):
            continue
        name = record.session if unit == "session" else str(record.repeat)
        samples.setdefault(name, []).append(value)
    return {name: _mean(values, is_ratio=is_ratio) for name, values in samples.items()}


def _mean(values: Sequence[float], *, is_ratio: bool) -> float:
    if len(values) == 1:
        return values[0]  # without what rounding a logarithm adds
    return statistics.geometric_mean(values) if is_ratio else statistics.fmean(values)


def means_of(rows: Sequence[Mapping[str, float]], metric: str) -> dict[str, float]:
    """The mean over trials of each sample that has them all, geometric where ratios are taken.

    So a block that was slow as a whole counts once, and not as often as there are trials.
    """
    if not rows:
        return {}
    is_ratio = way_of(metric) != "difference"
    shared = [name for name in rows[0] if all(name in row for row in rows)]
    return {name: _mean([row[name] for row in rows], is_ratio=is_ratio) for name in shared}


def change_of(
    a: Mapping[str, float],
    b: Mapping[str, float],
    metric: str,
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
        metric: what they are of.
        level: confidence level of the interval.
        resolution: the smallest step of the values; 0 where they have none.
        unit: what a sample is.
        is_once: whether equal values of a side say no more than one of them.
    """
    way = way_of(metric)
    sides = [list(side.values()) for side in (a, b) if side]
    is_once = is_once and all(map(are_same, sides))
    if way == "difference" and unit == "repeat":
        differences = [b[name] - a[name] for name in b if name in a]
        if not differences:
            return None
        value = estimate(differences, level=level, resolution=resolution, is_once=is_once)
        interval = clipped(value, limit_of(metric, [*a.values(), *b.values()]))
    elif a and b:
        # Of times the inverse, so that more is faster.
        is_inverse = way == "speed" and quantity_of(metric) != "rate"
        power = -1 if is_inverse else 1
        interval = compare_apart(
            [value**power for value in b.values()],
            [value**power for value in a.values()],
            level=level,
            is_exact=metric in EXACT,
            is_once=is_once,
            is_ratio=way != "difference",
        )
    else:
        return None
    null, above, below = _VERDICTS[way]
    if drifts(metric) and unit == "repeat":
        above = below = IN_THESE_SESSIONS
    return Change(interval, verdict_of(interval, null, above, below))
