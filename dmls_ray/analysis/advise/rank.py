"""The trials of a sweep ranked by an objective, with intervals against the best one; and the Pareto front of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import ArrayLike

from dmls_ray.analysis import metrics
from dmls_ray.analysis.advise.advice import Advice, Ranked
from dmls_ray.analysis.advise.objectives import OBJECTIVES, Objective, costs_of, target_of_runs
from dmls_ray.analysis.findings.effects import Effect, compare_each, judged
from dmls_ray.analysis.findings.losers import level_text, losers_of, loss_of
from dmls_ray.analysis.findings.measures import measure_of
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.formatting import format_interval
from dmls_ray.analysis.stats.intervals import Estimate, estimate
from dmls_ray.analysis.stats.learning import time_to_target
from dmls_ray.analysis.stats.looks import Looks
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.trial import TIME_TO_TARGET, Comparisons, Trial
from dmls_ray.util.errors import ConfigError


def advise(results: Results, name: str, **options: Any) -> Advice:
    """Which configuration to use for an objective.

    Args:
        results: the runs of a sweep.
        name: the objective, as after `--for`.
        options: fields of `Objective`.

    Raises:
        ConfigError: there is no such objective, these runs cannot be judged by it, or an option has no use.
    """
    if not results.records:
        raise ConfigError(f"{results.where} has no run; run its sweep first, or give another folder.")
    if name not in OBJECTIVES:
        raise ConfigError(f"--for {name} is unknown; choose from {', '.join(OBJECTIVES)}.")
    question = SweepQuestion.of(results.sessions)
    table = make_table(results, best_by=question.best_by)
    objective = OBJECTIVES[name](table=table, **options)
    ranked = rank(objective)
    loss = None
    if objective.is_learned:
        front = front_of(table, objective.metric, minimizes=bool(objective.minimizes))
    else:
        # A target says what the accuracy must come to.
        front = front_of(table, any_accuracy=objective.any_accuracy or options.get("target") is not None)
        if objective.target is None and ranked[0].value is not None:
            loss = loss_of(table, ranked[0].row)
    on_front = [row.trial_id for row in front.best if len(front.axes) > 1]
    return Advice(objective, ranked, on_front, front.axes, loss)


def rank(objective: Objective, looks: Looks | None = None) -> list[Ranked]:
    """The trials of a table, each compared with the best one; those that cannot be chosen last.

    Trials that cannot be chosen were measured as well: intervals of a metric are those of the table.

    Args:
        objective: what they are chosen for.
        looks: how the number of blocks came about, if otherwise than for all comparisons of the table.
    """
    table = objective.table
    candidates: list[Ranked] = []
    excluded: list[Ranked] = []
    for row in table.rows:
        item = _judge(row, objective)
        (excluded if item.value is None else candidates).append(item)
    if not (objective.any_accuracy or objective.is_learned or objective.target is not None):
        comparisons = None if looks is None else Comparisons(table.rows, looks=looks)
        losers = losers_of(table, [item.row for item in candidates], comparisons)
        candidates = [item for item in candidates if item.row.trial_id not in losers]
        for loss in losers.values():
            excluded.append(Ranked(loss.pair.trial, "loses", f"loses: {level_text(loss)}"))
    if not candidates:
        return excluded
    candidates.sort(key=lambda item: item.centre, reverse=not objective.minimizes)
    best, *others = candidates
    best.verdict = "best"

    rows = table.rows
    if objective.metric == TIME_TO_TARGET:
        rows = [item.row for item in candidates]
    samples = {}
    for row in rows:
        values = objective.samples(row)
        if objective.metric == "host_mem_mib":  # what is below the noise is as good
            values = {block: max(value, metrics.EQUAL_HOST_MIB) for block, value in values.items()}
        if values:
            samples[row.trial_id] = values
    measure = objective.measure
    comparisons = table.rows[0].comparisons
    model = comparisons.model_of(samples, measure.metric, is_ratio=measure.is_ratio, looks=looks)
    for item in others:
        contrast = model.against(item.row.trial_id, best.row.trial_id)
        if contrast is None:
            continue
        # A difference that is of no use makes none worse, however sure it is.
        sizes = [item.centre, best.centre]
        is_negligible = measure.metric in metrics.MEMORY_METRICS and metrics.hardly_differs(sizes, measure.metric)
        if is_negligible and contrast.low is not None and contrast.high is not None:
            contrast = structs.replace(contrast, low=min(contrast.low, 1.0), high=max(contrast.high, 1.0))
        item.against_best = Effect(Pair(item.row, best.row), measure, contrast, table.until)
        # Where the best has runs that did not reach the target, its times are too short to compare with others.
        is_worse = item.against_best.shown(0.0) == "worse" and best.all_reached
        item.verdict = "worse" if is_worse else "not distinguished"
    return candidates + excluded


def _judge(row: Trial, objective: Objective) -> Ranked:
    """A trial with its value, not yet compared, or why it has none."""
    if row.independent_ranks:
        return Ranked(row, "independent_ranks", "independent ranks")
    if objective.metric == TIME_TO_TARGET:
        return _by_time_to_target(row, objective)
    metric, target = objective.metric, objective.target
    values = list(objective.samples(row).values())
    accuracy = row.value_of("test_accuracy")
    reason = ""
    if not row.counted:
        reason = row.outcome
    elif objective.is_learned and row.is_stopped:
        reason = "stopped early"
    elif metrics.is_time(metric) and not row.timed:
        reason = "searched: no times"
    elif not values:
        reason = f"no {metric}"
    elif target is not None and (accuracy is None or accuracy < target):
        reason = "test accuracy not known" if accuracy is None else f"test accuracy {accuracy:.3f}"
    if reason:
        return Ranked(row, "other", reason)
    quantity, resolution = metrics.quantity_of(metric, values), metrics.resolution_of(metric, row.counted)
    is_exact, is_once = metrics.is_exact(metric), row.is_once(metric)
    value = estimate(values, quantity, resolution=resolution, is_exact=is_exact, is_once=is_once)
    return Ranked(row, "not compared", format_interval(value, objective.form), value)


def _by_time_to_target(row: Trial, objective: Objective) -> Ranked:
    """A trial with the time that its runs took to the target, or why it has none."""
    reached = time_to_target(row.records, objective.target)
    if reached is None and not row.timed:
        return Ranked(row, "other", "searched: no times" if row.counted else row.outcome)
    # The median may be known although fewer than half of the runs reached the target, which is not reliable.
    if reached is not None and (reached.centre is None or 2 * reached.reached < reached.n):
        return Ranked(row, "target_not_reached", f"not yet ({reached.reached} of {reached.n})")
    if reached is None or not reached.centre:
        return Ranked(row, "times_unknown", "times of its epochs not known")
    scale = objective.scale_of(row)
    if scale is None:
        return Ranked(row, "other", "not all of its runs have a price")
    low, high = (end and end * scale for end in (reached.low, reached.high))
    value = Estimate(reached.centre * scale, low, high, reached.n)
    text = replace(reached, centre=value.centre, low=low, high=high).describe(objective.form)
    return Ranked(row, "not compared", text, value, reached.reached == reached.n)


def race_for(table: Table, aim: str) -> tuple[list[Trial], list[Effect]]:
    """The trials of a race that are beaten for its aim, the losers first, and the others against the best one.

    Args:
        table: the trials, of which one has a result at least.
        aim: name of the objective.

    Raises:
        ConfigError: the runs cannot be judged by it.
    """
    target = None if OBJECTIVES[aim].is_learned else target_of_runs(table)
    objective = OBJECTIVES[aim](table=table, target=target)
    ranked = rank(objective, looks="race")
    rows = [item.row for item in ranked if item.value is not None]
    if not rows:
        return [], []
    beaten = [item.row for verdict in ("loses", "worse") for item in ranked if item.verdict == verdict]
    # What decides the aim, or all measures where it is none of them.
    measures = table.questions.measures(rows)
    if objective.is_learned:
        measures = [measure_of(objective.metric, "points")]
    elif objective.name == "throughput":
        measures = [measure for measure in measures if measure.kind in ("speed", "duration")]
    pairs = []
    for item in ranked[1:]:
        if item.verdict in ("not distinguished", "not compared"):
            pairs.append(Pair(item.row, ranked[0].row))
    return beaten, judged(compare_each(pairs, measures, table.until))


@dataclass(frozen=True)
class Front:
    """The trials of a table that no other trial beats in every metric."""

    axes: Sequence[str]
    """The metrics by which trials are compared."""
    rows: Sequence[Trial]
    """The trials that report all these metrics, and whose ranks trained one model together."""
    best: Sequence[Trial]
    """The trials on the front."""
    memory: str
    """The metric of memory; empty if none was measured. It is no axis where it hardly differs."""
    losers: Sequence[Effect]
    """Trials that are not on it since they lose accuracy against other choices."""


def front_of(
    table: Table, learnt: str = "test_accuracy", *, minimizes: bool = False, any_accuracy: bool = False
) -> Front:
    """The front of less time a run, less memory and more accuracy, by means.

    Means are rounded to the digits of a table, so that a tenth of a MiB beats no trial. A search has no times: its
    front is of memory and accuracy.

    Args:
        table: the sweep's table.
        learnt: the metric in the place of accuracy; left out if no trial reports it.
        minimizes: whether less of it is better.
        any_accuracy: whether a trial may be on the front that loses accuracy.
    """
    together = [row for row in table.rows if not row.independent_ranks]
    # The accuracy of a trial that a search stopped is that of an early epoch.
    judged = _reporting([row for row in together if not row.is_stopped], [learnt])
    comparable = judged or together
    axes = [name for name in costs_of(table) if name != learnt and _reporting(comparable, [name])]
    rows = _reporting(comparable, axes)
    memory = next((name for name in axes if name in metrics.MEMORY_METRICS), "")
    if metrics.hardly_differs([row.value_of(memory) or 0.0 for row in rows], memory):
        axes.remove(memory)
    if judged:
        axes.append(learnt)

    losers = {} if any_accuracy else losers_of(table, rows)
    candidates = [row for row in rows if row.trial_id not in losers]
    points = np.empty((len(candidates), len(axes)))
    for index, row in enumerate(candidates):
        for column, name in enumerate(axes):
            level = row.estimates[name].centre
            points[index, column] = round(level, metrics.format_of(name).usual(level))
    if judged and not minimizes:
        points[:, -1:] *= -1
    return Front(axes, rows, [candidates[index] for index in front(points)], memory, list(losers.values()))


def _reporting(rows: Sequence[Trial], names: Sequence[str]) -> list[Trial]:
    """The trials that report all of some metrics."""
    return [row for row in rows if all(row.value_of(name) is not None for name in names)]


def front(points: ArrayLike) -> list[int]:
    """The points that no other is at least as good as in everything and better than in something, by their indices.

    Args:
        points: of shape (points, metrics), what each costs; less is better throughout, so give an accuracy with a
            minus.
    """
    costs = np.asarray(points)
    found = []
    for index, point in enumerate(costs):
        as_good = costs[(costs <= point).all(axis=1)]
        if not (as_good < point).any():
            found.append(index)
    return found
