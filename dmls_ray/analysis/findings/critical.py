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
from statistics import fmean
from typing import Any

from dmls_ray.analysis.findings.answer import Answer
from dmls_ray.analysis.findings.effects import Effect, level_of
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Estimate, estimate
from dmls_ray.analysis.stats.scaling_laws import FEWEST_BATCHES, StepsCurve, fit_curve, refuting_batch
from dmls_ray.analysis.trials.axis import Pair, count_values
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord

MIN_SPLIT = 4
"""Repeats from which on the first half chooses the learning rate and the others are reported."""
COARSE = 0.25
"""Share of the steps to the target that may lie between two tests; with more, the middle is a rough guess."""


@dataclass(frozen=True, kw_only=True)
class BatchPoint:
    """One global batch at the learning rate that needs fewest steps with it."""

    batch: int
    trial: Trial
    """The trial with that learning rate."""
    runs: Sequence[RunRecord]
    """The runs that are reported."""
    is_at_edge: bool
    """Whether the best learning rate is the least or the largest that was tried with this batch."""
    steps_by_repeat: Mapping[int, float]
    """Optimizer steps to the target, to the middle between two tests, of each run that reached it."""
    steps: Estimate | None
    """Their mean; None unless all runs reached the target."""
    seconds: Estimate | None
    """Seconds from assignment to the test that found the target reached; None as `steps`."""
    tests_apart: float
    """The most optimizer steps from one test of a reported run to the next."""


@dataclass(frozen=True)
class CriticalBatch:
    """Steps to a target against the global batch."""

    target: float
    points: Sequence[BatchPoint]
    curve: StepsCurve | None
    """None with too few batches that reached the target, and where their steps are not on the curve."""
    noise_scale: Estimate | None
    """Gradient noise scale of the reported runs in samples, which predicts the critical batch; None without
    --noise-scale."""
    caveats: Mapping[str, Mapping[str, Any]]
    """What a reader must know of how well the curve fits, and how the batches were compared -> the values that it
    names."""


def critical_batch(trials: SweepTrials) -> CriticalBatch | None:
    """The steps to the target of each global batch at its best learning rate.

    Returns:
        None unless all trials have one target accuracy and differ in the global batch, and in the learning rate alone
        besides.
    """
    observed = [trial for trial in trials.rows if _observed(trial) and trial.factors.get("global_batch")]
    targets = {trial.records[0].config.get("target_accuracy") for trial in observed}
    differing = {name for name in trials.varied if count_values(observed, name) > 1}
    if len(targets) != 1 or None in targets or "global_batch" not in differing:
        return None
    if differing - {"global_batch", "batch_per_rank", "lr"}:
        return None

    by_batch: dict[int, list[Trial]] = {}
    for trial in observed:
        by_batch.setdefault(trial.factors["global_batch"], []).append(trial)
    is_tuned = len(by_batch) < len(observed)
    choosing = _choosing(observed) if is_tuned else ()
    points = [_point(batch, by_batch[batch], choosing) for batch in sorted(by_batch)]
    target = float(targets.pop() or 0.0)
    curve, caveats = _fit(points, target)
    missed = [point.batch for point in points if point.steps is None]
    if missed:
        caveats["not_reached"] = {"batches": missed, "target": target}
    coarse = [point.batch for point in points if point.steps and point.tests_apart > COARSE * point.steps.centre]
    if coarse:
        caveats["coarse"] = {"batches": coarse, "tests": 1 / COARSE}
    at_edge = [point.batch for point in points if point.is_at_edge]
    if at_edge:
        caveats["at_edge"] = {"batches": at_edge}
    if is_tuned and not choosing:
        caveats["tuned_by_reported"] = {}
    reported = [run.metrics for point in points for run in point.runs]
    noise = [metrics["gradient_noise_scale"] for metrics in reported if metrics.get("gradient_noise_scale")]
    return CriticalBatch(target, points, curve, estimate(noise, "amount") if noise else None, caveats)


def _observed(trial: Trial) -> list[RunRecord]:
    """Runs that say whether the target was reached; one that diverged, or did not fit into memory, never reaches it."""
    return [run for run in trial.records if run.mode == "bench" and run.outcome.shows_training()]


def _choosing(trials: Sequence[Trial]) -> Sequence[int]:
    """The repeats that choose the learning rates, of those that all trials have; empty if these are few."""
    repeats = [{run.repeat for run in _observed(trial)} for trial in trials]
    shared = sorted(set.intersection(*repeats))
    return shared[: len(shared) // 2] if len(shared) >= MIN_SPLIT else ()


def _point(batch: int, trials: Sequence[Trial], choosing: Collection[int]) -> BatchPoint:
    def score(trial: Trial) -> tuple[float, float]:
        """The share of runs that did not reach the target, then the mean logarithm of the others' steps."""
        runs = [run for run in _observed(trial) if not choosing or run.repeat in choosing]
        steps = _steps(runs).values()
        return (1 - len(steps) / len(runs), fmean(math.log(count) for count in steps)) if steps else (1.0, math.inf)

    best = min(trials, key=score)
    rates = sorted(_rate(trial) for trial in trials)
    reported = [run for run in _observed(best) if run.repeat not in choosing]
    by_repeat = _steps(reported)
    steps = seconds = None
    if len(by_repeat) == len(reported) > 0:
        steps = estimate([*by_repeat.values()], "amount")
        seconds = estimate([run.metrics["target_s"] for run in reported], "amount")
    return BatchPoint(
        batch=batch,
        trial=best,
        runs=reported,
        is_at_edge=len(rates) > 2 and _rate(best) in (rates[0], rates[-1]),
        steps_by_repeat=by_repeat,
        steps=steps,
        seconds=seconds,
        tests_apart=max((_tests_apart(run) for run in reported), default=1.0),
    )


def _steps(runs: Sequence[RunRecord]) -> dict[int, float]:
    """Steps of the runs that reached the target: the middle of those after the test before, up to the test itself.

    By repeat.
    """
    found = {}
    for run in runs:
        steps = run.metrics.get("target_steps")
        if steps and run.metrics.get("target_s"):
            found[run.repeat] = steps - (min(_tests_apart(run), steps) - 1) / 2
    return found


def _tests_apart(run: RunRecord) -> float:
    """Optimizer steps from one test to the next: one at least, and where they are not recorded."""
    if not run.metrics.get("steps") or not run.epochs:
        return 1.0
    return max(run.metrics["steps"] / len(run.epochs) / (run.config.get("target_tests") or 1), 1.0)


def _rate(trial: Trial) -> float:
    return float(trial.factors.get("lr") or trial.records[0].config.get("lr") or 0.0)


def _fit(points: Sequence[BatchPoint], target: float) -> tuple[StepsCurve | None, dict[str, dict[str, Any]]]:
    """The curve, and what a reader must know of how well it fits. A fit to few repeats is not tested."""
    # A batch with a run that did not reach the target is left out.
    reached = [point for point in points if point.steps is not None]
    means = {point.batch: point.steps.centre for point in reached if point.steps}
    curve = fit_curve(means)
    if curve is None:
        return None, {"few_batches": {"fewest": FEWEST_BATCHES, "target": target}}
    repeats = set.intersection(*(set(point.steps_by_repeat) for point in reached))
    if len(repeats) < MIN_REPEATS:
        return curve, {}
    shared, tolerance = {}, {}
    for point in reached:
        shared[point.batch] = {repeat: point.steps_by_repeat[repeat] for repeat in repeats}
        tolerance[point.batch] = point.tests_apart / 2
    worst = refuting_batch(curve, shared, tolerance)
    if worst is None:
        return curve, {}
    return None, {"misfit": {"batch": worst, "curve": curve.steps(worst), "steps": means[worst]}}


def answer_on_critical_batch(found: CriticalBatch) -> Answer:
    """What the global batch does to the steps and the time to a target.

    Args:
        found: the steps of each batch at its best learning rate.
    """
    first, last = found.points[0], found.points[-1]
    comparisons = [levels for point in found.points if (levels := _levels(point))]
    facts = {"target": found.target, "first": first.batch, "last": last.batch}
    headline = "critical_unknown"
    if found.curve is not None:
        critical = found.curve.critical
        facts["critical"] = float(f"{critical.centre:.2g}")
        by_curve = Pair(first.trial, first.trial, "curve")
        comparisons.append([level_of(by_curve, "samples", critical, len(found.points))])
        low, high = critical.ends
        headline = "critical"
        if low > last.batch:
            headline = "critical_above"
        elif high < first.batch:
            headline = "critical_below"
    if found.noise_scale is not None:
        noise = found.noise_scale
        by_noise = Pair(first.trial, first.trial, "gradient_noise")
        comparisons.append([level_of(by_noise, "samples", noise, noise.n)])
    return Answer(headline, facts, (), comparisons, found.caveats)


def _levels(point: BatchPoint) -> list[Effect]:
    """Steps and seconds of a batch, at its best learning rate."""
    if point.steps is None or point.seconds is None:
        return []
    rate = _rate(point.trial)
    value: dict[str, float] = {"global_batch": point.batch}
    if rate:
        value["lr"] = rate
    pair = Pair(point.trial, point.trial, "batch", value=value)
    values = {"steps to target": point.steps, "s to target": point.seconds}
    return [level_of(pair, name, value, value.n) for name, value in values.items()]
