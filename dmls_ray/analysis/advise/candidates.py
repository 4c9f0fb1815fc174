"""The trials of a sweep that can be chosen for an objective, the others with the reason, and how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dmls_ray.analysis.advise.objectives import Objective
from dmls_ray.analysis.findings.losers import level_text, losers_of
from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import is_time, quantity_of, resolution_of
from dmls_ray.analysis.stats.block_model import BlockModel
from dmls_ray.analysis.stats.formatting import format_interval
from dmls_ray.analysis.stats.intervals import Interval, estimate, is_above, is_below
from dmls_ray.analysis.stats.looks import Looks
from dmls_ray.analysis.stats.time_to_target import time_to_target
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.compare import TIME_TO_TARGET, Comparisons
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Trial

Verdict = Literal["best", "not distinguished", "worse", "not compared"]
"""Of a candidate against the best one. `not compared`: no block has both in one environment."""


@dataclass(frozen=True)
class Candidate:
    """A trial with its value of the objective."""

    row: Trial
    value: Interval
    text: str
    """Its value with its interval."""
    samples: dict[int, float]
    """By block; for a run that did not reach its target, a lower bound."""
    all_reached: bool = True
    """Whether every run reached the target."""

    @property
    def name(self) -> str:
        return describe_configuration(self.row.factors)


@dataclass(frozen=True)
class Excluded:
    """Why a trial cannot be chosen."""

    text: str
    kind: Literal["times_unknown", "target_not_reached", "independent_ranks", "loses", "other"] = "other"


_SEARCHED = Excluded("searched: no times")
_INDEPENDENT = Excluded("independent ranks", "independent_ranks")
_TIMES_UNKNOWN = Excluded("times of its epochs not known", "times_unknown")


def judge_trials(
    table: Table, objective: Objective, *, any_accuracy: bool = False, comparisons: Comparisons | None = None
) -> tuple[list[Candidate], list[tuple[Trial, Excluded]]]:
    """The trials that can be chosen, the best first, and the others, each with the reason.

    Args:
        table: the trials.
        objective: what they are chosen for.
        any_accuracy: whether one may be chosen that loses accuracy, where no target says what it must come to.
        comparisons: how the accuracies compare, if otherwise than in the table.
    """
    candidates: list[Candidate] = []
    excluded: list[tuple[Trial, Excluded]] = []
    for row in table.rows:
        judged = _judge(row, objective)
        if isinstance(judged, Candidate):
            candidates.append(judged)
        else:
            excluded.append((row, judged))
    if not (any_accuracy or objective.is_learned or objective.target is not None):
        losers = losers_of(table, [item.row for item in candidates], comparisons)
        candidates = [item for item in candidates if item.row.trial_id not in losers]
        for loss in losers.values():
            excluded.append((loss.pair.trial, Excluded(f"loses: {level_text(loss)}", "loses")))
    sign = 1 if objective.minimizes else -1
    return sorted(candidates, key=lambda item: sign * item.value.centre), excluded


def _judge(row: Trial, objective: Objective) -> Candidate | Excluded:
    if row.independent_ranks:
        return _INDEPENDENT
    if objective.metric == TIME_TO_TARGET:
        return _by_time_to_target(row, objective)
    return _by_metric(row, objective)


def _by_metric(row: Trial, objective: Objective) -> Candidate | Excluded:
    """A trial with its value of a metric, or why it has none."""
    if not row.counted:
        return Excluded(row.outcome)
    if objective.is_learned and row.is_stopped:
        return Excluded("stopped early")
    metric = objective.metric
    values = [value for value in row.by_block(metric).values() if objective.counts(value)]
    if not values:
        return _SEARCHED if is_time(metric) and not row.timed else Excluded(f"no {metric}")
    if objective.target is not None:
        reached = row.value_of("test_accuracy")
        if reached is None:
            return Excluded("test accuracy not known")
        if reached < objective.target:
            return Excluded(f"test accuracy {reached:.3f}")
    price = objective.price_per_second(row)
    value = estimate(
        [value * price for value in values],
        quantity_of(metric, values),
        resolution=resolution_of(metric, row.counted),
        is_exact=metric in EXACT,
        is_once=row.is_once(metric),
    )
    return Candidate(row, value, format_interval(value, objective.form), objective.samples(row))


def _by_time_to_target(row: Trial, objective: Objective) -> Candidate | Excluded:
    """A trial with the time that its runs took to the target, or why it has none."""
    reached = time_to_target(row.records, objective.target)
    if reached is None:
        if row.timed:
            return _TIMES_UNKNOWN
        return _SEARCHED if row.counted else Excluded(row.outcome)
    # The median may be known although fewer than half of the runs reached the target, which is not reliable.
    if reached.median is None or 2 * reached.reached < reached.n:
        return Excluded(f"not yet ({reached.reached} of {reached.n})", "target_not_reached")
    if reached.median <= 0:
        return _TIMES_UNKNOWN
    price = objective.price_per_second(row)
    low, high = (None if end is None else end * price for end in (reached.low, reached.high))
    value = Interval(reached.median * price, low, high)
    text = replace(reached, median=value.centre, low=low, high=high).describe(objective.form)
    samples: dict[int, float] = {}
    for record in row.records:
        alone = time_to_target([record], objective.target)
        if alone is not None:
            # A run that did not reach the target would have taken longer than it lasted.
            samples[record.repeat] = (alone.median or record.metrics.get("total_s", 0.0)) * price
    samples = {block: value for block, value in samples.items() if value > 0}
    return Candidate(row, value, text, samples, reached.reached == reached.n)


def model_of(
    table: Table, objective: Objective, candidates: Sequence[Candidate], *, looks: Looks | None = None
) -> BlockModel:
    """How candidates compare.

    Trials that cannot be chosen were measured as well: intervals of a metric are those of the table.

    Args:
        table: the trials.
        objective: what they are chosen for.
        candidates: at least one.
        looks: how the number of blocks came about, if otherwise than for all comparisons of the table.
    """
    samples = {item.row.trial_id: item.samples for item in candidates}
    if objective.metric != TIME_TO_TARGET:
        samples = {row.trial_id: objective.samples(row) for row in table.rows}
    samples = {trial: values for trial, values in samples.items() if values}
    comparisons = table.rows[0].comparisons
    return comparisons.model_of(samples, objective.metric, is_ratio=not objective.is_learned, looks=looks)


@dataclass(frozen=True)
class Ranked:
    """A candidate compared with the best one."""

    candidate: Candidate
    verdict: Verdict
    effect: Interval | None = None
    """A ratio of values, or a difference of what was learned; the intervals of all candidates hold together at 95%."""


def rank_against(best: Candidate, candidate: Candidate, objective: Objective, model: BlockModel) -> Ranked:
    """A candidate compared with the best one. A difference that is of no use makes none worse, however sure it is."""
    effect: Interval | None = model.against(candidate.row.trial_id, best.row.trial_id)
    if effect is None:
        return Ranked(candidate, "not compared")
    null = objective.null
    is_negligible = objective.is_negligible(candidate.value.centre, best.value.centre)
    if is_negligible and effect.low is not None and effect.high is not None:
        effect = Interval(effect.centre, min(effect.low, null), max(effect.high, null))
    is_worse = is_above(effect, null) if objective.minimizes else is_below(effect, null)
    # Where the best has runs that did not reach the target, its times are too short to compare with others.
    return Ranked(candidate, "worse" if is_worse and best.all_reached else "not distinguished", effect)
