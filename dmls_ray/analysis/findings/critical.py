"""How many steps, and how long, training needs to a target against the global batch, and where larger batches stop to
save steps.

Each batch is judged at its best learning rate (Shallue et al., JMLR 2019, arXiv 1811.03600). With enough repeats, the
first half of them chooses it and the others are reported, since the best of several looks better than it is. Steps to
a target follow S = S_min (1 + B_crit / B), where B_crit is the critical batch: there twice the fewest steps and twice
the fewest samples are needed (McCandlish et al., arXiv 1812.06162, equation 2.11).

A run reached its target somewhere between two tests, and is taken to have reached it in the middle. With the later test
instead, steps would be rounded up by the same number of samples for all batches, which is what B_crit is measured by.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from dmls_ray.analysis.findings.answer import Answer, Headline
from dmls_ray.analysis.findings.effects import Effect, level_of
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.stats.critical_batch import FEWEST_BATCHES, Curve, fit_curve, refuting_batch
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Estimate, Interval, estimate
from dmls_ray.analysis.trials.groups import count_values
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome

MIN_SPLIT = 4
"""Repeats from which on the first half chooses the learning rate and the others are reported."""
COARSE = 0.25
"""Share of the steps to the target that may lie between two tests; with more, the middle is a rough guess."""
_TUNED = "lr"
_UNOBSERVED = (Outcome.SKIPPED, Outcome.KILLED, Outcome.ERROR)
"""Outcomes that say nothing of how many steps a training needs."""


@dataclass(frozen=True, kw_only=True)
class BatchPoint:
    """One global batch at the learning rate that needs fewest steps with it."""

    batch: int
    row: Row
    """The trial with that learning rate."""
    run_ids: tuple[str, ...]
    """The runs that are reported."""
    reached: int
    """How many of them reached the target."""
    steps: Estimate | None
    """Optimizer steps to the target, to the middle between two tests; None unless all of them reached it."""
    steps_by_repeat: Mapping[int, float]
    """Likewise of each of them that reached it."""
    seconds: Estimate | None
    """Seconds from assignment to the test that found the target reached; None as `steps`."""
    least_steps: float | None
    """Where some did not reach it, a lower limit of the mean steps: these count with all steps that they trained."""
    least_seconds: float | None
    """Likewise of the mean seconds."""
    is_at_edge: bool
    """Whether the best learning rate is the least or the largest that was tried with this batch."""
    steps_between_tests: float | None
    """None where it is not recorded."""

    @property
    def is_censored(self) -> bool:
        """Whether a run did not reach the target, so that its steps are known to be many, and not how many."""
        return self.reached < len(self.run_ids)

    @property
    def is_coarse(self) -> bool:
        """Whether the target is few tests away, so that its steps are known roughly only."""
        return (
            self.steps is not None
            and self.steps_between_tests is not None
            and self.steps_between_tests > max(COARSE * self.steps.centre, 1)
        )


@dataclass(frozen=True, kw_only=True)
class CriticalBatch:
    """Steps to a target against the global batch."""

    target: float
    points: Sequence[BatchPoint]
    is_split: bool
    """Whether other runs chose the learning rates than those that are reported."""
    curve: Curve | None
    """None with too few batches that reached the target, and where their steps are not on the curve."""
    fit: Mapping[str, Mapping[str, Any]]
    """What a reader must know of how well the curve fits -> the values that it names."""
    noise_scale: Estimate | None
    """Gradient noise scale of the reported runs, in samples, which predicts the critical batch; None if no run has
    it."""

    @property
    def critical(self) -> Interval | None:
        """The critical batch, in samples, with a 95% interval."""
        return None if self.curve is None else self.curve.critical


def critical_batch(trials: SweepTrials) -> CriticalBatch | None:
    """The steps to the target of each global batch at its best learning rate.

    Returns:
        None unless all trials have one target accuracy and differ in the global batch, and in the learning rate alone
        besides.
    """
    rows = [row for row in trials.rows if _observed(row) and row.factors.get("global_batch")]
    targets = {row.records[0].config.get("target_accuracy") for row in rows}
    others = [name for name in trials.varied if name not in ("global_batch", "batch_per_rank", _TUNED)]
    if len(targets) != 1 or None in targets or count_values(rows, "global_batch") < 2:
        return None
    if any(count_values(rows, name) > 1 for name in others):
        return None

    target = float(targets.pop() or 0.0)
    by_batch: dict[int, list[Row]] = {}
    for row in rows:
        by_batch.setdefault(row.factors["global_batch"], []).append(row)
    choosing = _choosing(rows) if any(len(group) > 1 for group in by_batch.values()) else frozenset[int]()
    points = [_point(batch, group, choosing) for batch, group in sorted(by_batch.items())]
    reported = chain.from_iterable(_reported(point.row, choosing) for point in points)
    noise = [run.metrics["gradient_noise_scale"] for run in reported if run.metrics.get("gradient_noise_scale")]
    curve, fit = _fit(points, target)
    return CriticalBatch(
        target=target,
        points=points,
        is_split=bool(choosing),
        curve=curve,
        fit=fit,
        noise_scale=estimate(noise, "amount") if noise else None,
    )


def _observed(row: Row) -> list[RunRecord]:
    """Runs that say whether the target was reached; one that diverged, or did not fit into memory, never reaches it."""
    return [run for run in row.records if run.mode == "bench" and run.outcome not in _UNOBSERVED]


def _choosing(rows: Sequence[Row]) -> frozenset[int]:
    """The repeats that choose the learning rates, of those that all rows have; empty if these are few."""
    shared = sorted(frozenset.intersection(*(frozenset(run.repeat for run in _observed(row)) for row in rows)))
    return frozenset(shared[: len(shared) // 2] if len(shared) >= MIN_SPLIT else ())


def _reported(row: Row, choosing: Collection[int]) -> list[RunRecord]:
    return [run for run in _observed(row) if run.repeat not in choosing]


def _point(batch: int, rows: Sequence[Row], choosing: Collection[int]) -> BatchPoint:
    def judged(row: Row) -> list[RunRecord]:
        return [run for run in _observed(row) if not choosing or run.repeat in choosing]

    best = min(rows, key=lambda row: _rank(judged(row)))
    rates = sorted(map(_rate, rows))
    runs = _reported(best, choosing)
    by_repeat = _steps(runs)
    steps = list(by_repeat.values())
    seconds = [run.metrics["target_s"] for run in runs if run.metrics.get("target_s")]
    is_complete = bool(steps) and len(steps) == len(runs)
    missing = len(runs) - len(steps)
    everything = [run for row in rows for run in _observed(row)]
    return BatchPoint(
        batch=batch,
        row=best,
        run_ids=tuple(run.run_id for run in runs),
        reached=len(steps),
        steps=estimate(steps, "amount") if is_complete else None,
        steps_by_repeat=by_repeat,
        seconds=estimate(seconds, "amount") if is_complete and seconds else None,
        least_steps=None if is_complete else _least(steps, _lengths(everything, "steps"), missing),
        least_seconds=None if is_complete else _least(seconds, _lengths(everything, "total_s"), missing),
        is_at_edge=len(rates) > 2 and _rate(best) in (rates[0], rates[-1]),
        steps_between_tests=max(filter(None, map(_steps_between_tests, runs)), default=None),
    )


def _rank(runs: Sequence[RunRecord]) -> tuple[float, float]:
    """How good runs are: the share that did not reach the target, then the mean logarithm of the others' steps."""
    steps = _steps(runs).values()
    missing = 1 - len(steps) / len(runs) if runs else 1.0
    return missing, sum(map(math.log, steps)) / len(steps) if steps else math.inf


def _lengths(runs: Sequence[RunRecord], metric: str) -> list[float]:
    """How long the runs trained, by a metric."""
    return [run.metrics[metric] for run in runs if metric in run.metrics]


def _least(reached: Sequence[float], trained: Sequence[float], missing: int) -> float | None:
    """The geometric mean if those that did not reach the target had reached it at the end of the longest training.

    A training that is cut short, by a loss that is not finite say, does not reach the target however long it goes on.
    """
    longest = max(trained, default=0.0)
    if not longest or not missing:
        return None
    return estimate([*reached, *[longest] * missing], "amount").centre


def _steps(runs: Sequence[RunRecord]) -> dict[int, float]:
    """Steps of the runs that reached the target: the middle of those after the test before, up to the test itself.

    By repeat.
    """
    return {
        run.repeat: steps - (min(_steps_between_tests(run) or 1.0, steps) - 1) / 2
        for run in runs
        if (steps := run.metrics.get("target_steps"))
    }


def _steps_between_tests(run: RunRecord) -> float | None:
    if not run.metrics.get("steps") or not run.epochs:
        return None
    return max(run.metrics["steps"] / len(run.epochs) / (run.config.get("target_tests") or 1), 1.0)


def _rate(row: Row) -> float:
    config = row.records[0].config
    return float(row.factors.get(_TUNED) or config.get(_TUNED) or 0.0)


def _fit(points: Sequence[BatchPoint], target: float) -> tuple[Curve | None, dict[str, dict[str, Any]]]:
    """The curve, and what a reader must know of how well it fits."""
    # A batch with a run that did not reach the target is left out.
    known = {point.batch: point for point in points if point.steps is not None}
    means = {point.batch: point.steps.centre for point in points if point.steps is not None}
    curve = fit_curve(means)
    if curve is None:
        return None, {"few_batches": {"fewest": FEWEST_BATCHES, "target": target}}
    repeats = sorted(set.intersection(*(set(point.steps_by_repeat) for point in known.values())))
    if len(repeats) < MIN_REPEATS:
        return curve, {"fit_untested": {"repeats": MIN_REPEATS}}
    steps, tolerance = {}, {}
    for batch, point in known.items():
        steps[batch] = {repeat: point.steps_by_repeat[repeat] for repeat in repeats}
        tolerance[batch] = (point.steps_between_tests or 0.0) / 2
    worst = refuting_batch(curve, steps, tolerance)
    if worst is None:
        return curve, {}
    return None, {"misfit": {"batch": worst, "curve": curve.steps(worst), "steps": means[worst]}}


def answer_on_critical_batch(found: CriticalBatch) -> Answer:
    """What the global batch does to the steps and the time to a target.

    Args:
        found: the steps of each batch at its best learning rate.
    """
    comparisons = [levels for point in found.points if (levels := _levels(point))]
    row = found.points[0].row
    facts = {"target": found.target, "first": found.points[0].batch, "last": found.points[-1].batch}
    if found.critical is not None:
        facts["critical"] = float(f"{found.critical.centre:.2g}")
        comparisons.append(
            [level_of("samples", "critical batch, by the curve", row, found.critical, len(found.points))]
        )
    if found.noise_scale is not None:
        value = found.noise_scale
        comparisons.append([level_of("samples", "critical batch, by gradient noise", row, value, value.n)])
    return Answer(_headline(found), facts, (), comparisons, {**found.fit, **_caveats(found)})


def _levels(point: BatchPoint) -> list[Effect]:
    """Steps and seconds of a batch, at its best learning rate."""
    rate = _rate(point.row)
    label = f"global_batch {point.batch}, lr {rate:g}" if rate else f"global_batch {point.batch}"
    values = {"steps to target": point.steps, "s to target": point.seconds}
    return [level_of(name, label, point.row, value, value.n) for name, value in values.items() if value is not None]


def _headline(found: CriticalBatch) -> Headline:
    critical = found.critical
    if critical is None or critical.low is None or critical.high is None:
        return "critical_unknown"
    if critical.low > found.points[-1].batch:
        return "critical_above"
    if critical.high < found.points[0].batch:
        return "critical_below"
    return "critical"


def _caveats(found: CriticalBatch) -> dict[str, dict[str, Any]]:
    """What a reader must know of how the batches were compared."""
    of_batches = {
        "not_reached": [point.batch for point in found.points if point.is_censored],
        "coarse": [point.batch for point in found.points if point.is_coarse],
        "at_edge": [point.batch for point in found.points if point.is_at_edge],
    }
    caveats: dict[str, dict[str, Any]] = {}
    for name, batches in of_batches.items():
        if batches:
            caveats[name] = {"batches": batches, "target": found.target, "tests": 1 / COARSE}
    if all(point.row.factors.get(_TUNED) is None for point in found.points):
        caveats["untuned"] = {}
    elif not found.is_split:
        caveats["tuned_by_reported"] = {}
    return caveats
