"""The trials of a sweep that can be chosen for an objective, the others with the reason, and how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dmls_ray.analysis.advise.objective import Objective
from dmls_ray.analysis.findings.effects import Effect
from dmls_ray.analysis.findings.losers import level_text, losers_of
from dmls_ray.analysis.metrics import is_time, quantity_of, resolution_of
from dmls_ray.analysis.stats.block_model import BlockModel
from dmls_ray.analysis.stats.formatting import format_interval
from dmls_ray.analysis.stats.intervals import Interval, estimate
from dmls_ray.analysis.stats.looks import Looks
from dmls_ray.analysis.stats.time_to_target import time_to_target
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.compare import TIME_TO_TARGET, Comparisons
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Trial


@dataclass(frozen=True)
class Candidate:
    """A trial with its value of the objective."""

    row: Trial
    value: Interval
    text: str
    """Its value with its interval."""
    scores: dict[int, float]
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
    loser: Effect | None = None
    """What it loses, of the kind `loses`."""


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
            excluded.append((loss.pair.trial, Excluded(f"loses: {level_text(loss)}", "loses", loss)))
    return sorted(candidates, key=lambda item: objective.score(item.value.centre)), excluded


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
    if not values and is_time(metric) and not row.timed:
        return _SEARCHED
    if not values:
        return Excluded(f"no {metric}")
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
        is_exact=objective.is_exact,
        is_once=row.is_once(metric),
    )
    return Candidate(row, value, format_interval(value, objective.form), objective.scores(row))


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
    return Candidate(row, value, text, _scores_to_target(row, objective), reached.reached == reached.n)


def _scores_to_target(row: Trial, objective: Objective) -> dict[int, float]:
    price = objective.price_per_second(row)
    scores: dict[int, float] = {}
    for record in row.records:
        alone = time_to_target([record], objective.target)
        if alone is None:
            continue
        # A run that did not reach the target would have taken longer than it lasted.
        taken = alone.median or record.metrics.get("total_s")
        if taken:
            scores[record.repeat] = objective.score(taken * price)
    return scores


def model_of(
    table: Table, objective: Objective, candidates: Sequence[Candidate], *, looks: Looks | None = None
) -> BlockModel:
    """How candidates compare, by their scores.

    Trials that cannot be chosen were measured as well: intervals of a metric are those of the table.
    """
    if objective.metric == TIME_TO_TARGET:
        rows = [item.row for item in candidates]
        scores = {item.row.trial_id: item.scores for item in candidates}
    else:
        rows = table.rows
        scores = {row.trial_id: objective.scores(row) for row in rows}
    return objective.model(rows, scores, looks=looks)


def compare_scores(objective: Objective, model: BlockModel, candidate: Candidate, best: Candidate) -> Interval | None:
    """By how much the score of a candidate is worse than that of the best one; None without common blocks.

    The interval of a difference that is of no use, however sure it is, contains 0.
    """
    worse = model.against(candidate.row.trial_id, best.row.trial_id)
    if worse is None or worse.low is None or worse.high is None:
        return worse
    if objective.is_negligible(candidate.value.centre, best.value.centre):
        return Interval(worse.centre, min(worse.low, 0.0), max(worse.high, 0.0))
    return worse
