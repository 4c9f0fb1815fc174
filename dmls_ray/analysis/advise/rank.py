"""The trials of a sweep ranked by an objective: values, intervals against the best one, verdicts, and the front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dmls_ray.analysis.advise.objectives import OBJECTIVES, Objective, Request, settle, target_of_runs
from dmls_ray.analysis.advise.pareto import front_of
from dmls_ray.analysis.findings.effects import Effect, compare_each, judged, measure_of
from dmls_ray.analysis.findings.losers import level_text, losers_of, loss_of
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.memory import EXACT, MEMORY, hardly_differs
from dmls_ray.analysis.metrics import is_time, quantity_of, resolution_of
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.formatting import format_interval
from dmls_ray.analysis.stats.intervals import Interval, as_dict, estimate, is_above, is_below
from dmls_ray.analysis.stats.looks import Looks
from dmls_ray.analysis.stats.time_to_target import time_to_target
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.compare import TIME_TO_TARGET, Comparisons
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.storage.sweep_file import read_sweep
from dmls_ray.util.errors import ConfigError

Verdict = Literal[
    "best", "not distinguished", "worse", "not compared",
    "times_unknown", "target_not_reached", "independent_ranks", "loses", "other",
]  # fmt: skip
"""Of a trial against the best one, or why it cannot be chosen. `not compared`: no block has both in one environment."""


@dataclass(frozen=True)
class Ranked:
    """A trial with its value of the objective, compared with the best one; or why it cannot be chosen."""

    row: Trial
    verdict: Verdict
    text: str
    """Its value with its interval; without a value, the reason."""
    value: Interval | None = None
    """None where it cannot be chosen."""
    all_reached: bool = True
    """Whether every run reached the target."""
    against_best: Interval | None = None
    """A ratio of values, or a difference of what was learned; the intervals of all trials hold together at 95%."""

    @property
    def name(self) -> str:
        return describe_configuration(self.row.factors)

    @property
    def centre(self) -> float:
        """Its value; only of a trial that can be chosen."""
        assert self.value is not None
        return self.value.centre

    def to_dict(self) -> dict[str, Any]:
        """Without its text if it has a value; intervals have the keys value, low and high."""
        data = {
            "trial_id": self.row.trial_id,
            "config": self.row.factors,
            "verdict": self.verdict,
            "n": len(self.row.counted),
            "outcome": self.row.outcome,
        }
        if self.value is None:
            return data | {"reason": self.text}
        return data | as_dict(self.value) | {"against_best": self.against_best and as_dict(self.against_best)}


@dataclass(frozen=True)
class Advice:
    """What the runs of a sweep say to an objective."""

    objective: Objective
    table: Table
    trials: Sequence[Ranked]
    """The best first, those that cannot be chosen last."""
    front: Sequence[str]
    """trial_id of those that no other one beats in all of `front_metrics`, by their means."""
    front_metrics: Sequence[str]
    loss: Effect | None
    """By how much the best one is less accurate than the most accurate trial, beyond chance."""

    @property
    def best(self) -> Ranked | None:
        """None where no trial can be chosen."""
        return next((item for item in self.trials if item.verdict == "best"), None)

    @property
    def excluded(self) -> list[Ranked]:
        """The trials that cannot be chosen."""
        return [item for item in self.trials if item.value is None]

    def with_verdict(self, verdict: Verdict) -> list[Trial]:
        """The trials with a verdict, the best first."""
        return [item.row for item in self.trials if item.verdict == verdict]

    def to_dict(self) -> dict[str, Any]:
        """All values as plain data, without texts; intervals have the keys value, low and high."""
        loss = None
        if self.loss is not None:
            names = {"metric": self.loss.measure.name, "base": self.loss.pair.base.trial_id}
            loss = names | as_dict(self.loss.contrast)
        return {
            "objective": self.objective.name,
            "metric": self.objective.metric,
            "minimizes": self.objective.minimizes,
            "target": self.objective.target,
            "is_ratio": not self.objective.is_learned,
            "trials": [item.to_dict() | {"is_on_front": item.row.trial_id in self.front} for item in self.trials],
            "front_metrics": list(self.front_metrics),
            "loss": loss,
        }


def advise(results: Results, name: str, **options: Any) -> Advice:
    """Which configuration to use for an objective.

    Args:
        results: the runs of a sweep.
        name: the objective, as after `--for`.
        options: fields of `Request`.

    Raises:
        ConfigError: there is no such objective, these runs cannot be judged by it, or an option has no use.
    """
    if not results.records:
        raise ConfigError(f"{results.where} has no run; run its sweep first, or give another folder.")
    if name not in OBJECTIVES:
        raise ConfigError(f"--for {name} is unknown; choose from {', '.join(OBJECTIVES)}.")
    question = SweepQuestion.of(read_sweep(results.folder).get("sessions", []))
    table = make_table(results, best_by=question.best_by)
    request = Request(**options)
    objective = settle(name, table, request)
    ranked = rank(table, objective, any_accuracy=request.any_accuracy)
    loss = None
    # A target says what the accuracy must come to.
    if ranked[0].value is not None and not objective.is_learned and objective.target is None:
        loss = loss_of(table, ranked[0].row)
    front = front_of(
        table,
        objective.metric if objective.is_learned else "test_accuracy",
        minimizes=objective.is_learned and objective.minimizes,
        any_accuracy=request.any_accuracy or request.target is not None,
    )
    on_front = [row.trial_id for row in front.best if len(front.axes) > 1]
    return Advice(objective, table, ranked, on_front, front.axes, loss)


def rank(table: Table, objective: Objective, *, any_accuracy: bool = False, looks: Looks | None = None) -> list[Ranked]:
    """The trials of a table, each compared with the best one; those that cannot be chosen last.

    Trials that cannot be chosen were measured as well: intervals of a metric are those of the table.

    Args:
        table: the trials.
        objective: what they are chosen for.
        any_accuracy: whether one may be chosen that loses accuracy, where no target says what it must come to.
        looks: how the number of blocks came about, if otherwise than for all comparisons of the table.
    """
    candidates: list[Ranked] = []
    excluded: list[Ranked] = []
    for row in table.rows:
        item = _judge(row, objective)
        (excluded if item.value is None else candidates).append(item)
    if not (any_accuracy or objective.is_learned or objective.target is not None):
        comparisons = None if looks is None else Comparisons(table.rows, looks=looks)
        losers = losers_of(table, [item.row for item in candidates], comparisons)
        candidates = [item for item in candidates if item.row.trial_id not in losers]
        for loss in losers.values():
            excluded.append(Ranked(loss.pair.trial, "loses", f"loses: {level_text(loss)}"))
    if not candidates:
        return excluded
    candidates.sort(key=lambda item: item.centre, reverse=not objective.minimizes)

    rows = [item.row for item in candidates] if objective.metric == TIME_TO_TARGET else table.rows
    samples = {row.trial_id: values for row in rows if (values := objective.samples(row))}
    model = table.rows[0].comparisons.model_of(
        samples, objective.metric, is_ratio=not objective.is_learned, looks=looks
    )
    best = replace(candidates[0], verdict="best")
    ranked = [best]
    for item in candidates[1:]:
        effect = model.against(item.row.trial_id, best.row.trial_id)
        ranked.append(_against(best, item, effect, objective))
    return ranked + excluded


def _against(best: Ranked, item: Ranked, effect: Interval | None, objective: Objective) -> Ranked:
    """A trial compared with the best one. A difference that is of no use makes none worse, however sure it is."""
    if effect is None:
        return item
    null = 0.0 if objective.is_learned else 1.0
    is_negligible = objective.metric in MEMORY and hardly_differs([item.centre, best.centre], objective.metric)
    if is_negligible and effect.low is not None and effect.high is not None:
        effect = Interval(effect.centre, min(effect.low, null), max(effect.high, null))
    is_worse = is_above(effect, null) if objective.minimizes else is_below(effect, null)
    # Where the best has runs that did not reach the target, its times are too short to compare with others.
    verdict: Verdict = "worse" if is_worse and best.all_reached else "not distinguished"
    return replace(item, verdict=verdict, against_best=effect)


def _judge(row: Trial, objective: Objective) -> Ranked:
    """A trial with its value, not yet compared, or why it has none."""
    if row.independent_ranks:
        return Ranked(row, "independent_ranks", "independent ranks")
    if objective.metric == TIME_TO_TARGET:
        return _by_time_to_target(row, objective)
    metric = objective.metric
    samples = objective.samples(row)
    values = [value for block, value in row.by_block(metric).items() if block in samples]
    reached = row.value_of("test_accuracy")
    reason = ""
    if not row.counted:
        reason = row.outcome
    elif objective.is_learned and row.is_stopped:
        reason = "stopped early"
    elif is_time(metric) and not row.timed:
        reason = "searched: no times"
    elif not samples:
        reason = f"no {metric}"
    elif objective.target is not None and reached is None:
        reason = "test accuracy not known"
    elif objective.target is not None and reached is not None and reached < objective.target:
        reason = f"test accuracy {reached:.3f}"
    if reason:
        return Ranked(row, "other", reason)
    price = objective.price_per_second(row)
    value = estimate(
        [value * price for value in values],
        quantity_of(metric, values),
        resolution=resolution_of(metric, row.counted),
        is_exact=metric in EXACT,
        is_once=row.is_once(metric),
    )
    return Ranked(row, "not compared", format_interval(value, objective.form), value)


def _by_time_to_target(row: Trial, objective: Objective) -> Ranked:
    """A trial with the time that its runs took to the target, or why it has none."""
    reached = time_to_target(row.records, objective.target)
    if reached is None and not row.timed:
        return Ranked(row, "other", "searched: no times" if row.counted else row.outcome)
    # The median may be known although fewer than half of the runs reached the target, which is not reliable.
    if reached is not None and (reached.median is None or 2 * reached.reached < reached.n):
        return Ranked(row, "target_not_reached", f"not yet ({reached.reached} of {reached.n})")
    if reached is None or not reached.median:
        return Ranked(row, "times_unknown", "times of its epochs not known")
    price = objective.price_per_second(row)
    low, high = (None if end is None else end * price for end in (reached.low, reached.high))
    value = Interval(reached.median * price, low, high)
    text = replace(reached, median=value.centre, low=low, high=high).describe(objective.form)
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
    objective = settle(aim, table, Request(target=target))
    ranked = rank(table, objective, looks="race")
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
            pairs.append(Pair("", f"{item.name} vs {ranked[0].name}", "", item.row, ranked[0].row))
    return beaten, judged(compare_each(pairs, measures, table.until))
