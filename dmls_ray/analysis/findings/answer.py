"""`Answer`: the comparisons that answer the question of a sweep, and the one that its headline is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dmls_ray.analysis.findings.claims import Pair, compared_rows, pair_along
from dmls_ray.analysis.findings.effects import Comparison, comparison_of, comparison_of_mean, steps_of
from dmls_ray.analysis.findings.lead import lead_of
from dmls_ray.analysis.findings.losers import losers_of
from dmls_ray.analysis.findings.measures import Measure
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.axis import RANKS, Axis
from dmls_ray.analysis.trials.groups import BATCHES, count_values
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.steps import StepChange, step_change
from dmls_ray.analysis.trials.trial import Row

MOST_ROWS = 8
"""Comparisons of a table: more are not read at a glance."""
_EXPLAINED_FROM = 0.1
"""Share of a step from which on its change is explained, where the speeds are not distinguished."""
_TUNED = "lr"
"""The field that each choice has its best value of."""

Headline = Literal[
    "none_ok", "searched", "independent", "one_trial", "no_pair", "not_compared", "no_baseline", "pair", "none_better",
    "none_differs", "best_found", "not_reported", "critical", "critical_above", "critical_below", "critical_unknown",
]  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What the runs of a sweep say."""

    headline: Headline
    """Which sentence the headline is."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Values that it names."""
    lead: Comparison = ()
    """The comparison that it is about."""
    comparisons: Sequence[Comparison] = ()
    """All, in the order in which they are read: those of the field that was asked about first."""
    caveats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What a reader must know -> the values that it names."""
    why: StepChange | None = None
    """How the steps of the two trials of the headline differ."""


def answer_along(trials: SweepTrials, name: str) -> Answer:
    """What a field does to speed, accuracy, memory and whatever else is measured, and what the other fields do.

    Args:
        trials: the trials of the sweep.
        name: the field that the sweep asks about.
    """
    rows = compared_rows(trials)
    caveats = _caveats(trials)
    measures = trials.questions.measures(rows)
    if not measures:
        return Answer(_without_measures(trials), caveats=caveats)
    within = trials.questions.comparisons_within_trials(trials)
    varied_name = axis_that_varies(trials, rows, name)
    if varied_name != name and name in trials.varied and not within:
        caveats["one_value"] = {"field": name}
    if not varied_name:
        return _answer_within(within, caveats) if within else Answer("one_trial", caveats=caveats)
    axis = trials.axis_of(varied_name, rows)
    if not axis.groups:
        return _answer_within(within, caveats) if within else Answer("no_pair", {"field": axis.noun}, caveats=caveats)
    first = axis.groups[0]
    along = [comparison_of(pair_along(axis, first, row, first[0]), measures, trials.until) for row in first[1:]]
    candidates = [comparison for comparison in along if comparison and comparison[0].measure.is_outcome]
    if not candidates and not within:
        return Answer("not_compared", caveats=caveats)
    comparisons = [*within, *_best_of_all(trials, rows, measures), *_of_field(trials, axis, measures)]
    others = _of_other_fields(trials, rows, axis, measures)
    room = max(MOST_ROWS - len(comparisons) - len(others), 0)
    comparisons += [*_steps(trials, axis, measures)[:room], *others]
    if within:
        return replace(_answer_within(within, caveats), comparisons=comparisons)
    is_amount = axis.is_ordered or axis.name in RANKS
    headline, lead = lead_of(candidates, losers_of(trials, rows), is_amount=is_amount)
    if lead[0].key not in [comparison[0].key for comparison in comparisons]:
        comparisons.insert(0, lead)
    facts = {"field": axis.noun, "base": axis.value(first[0])}
    return Answer(headline, facts, lead, comparisons, caveats, why_of(lead))


def _answer_within(within: Sequence[Comparison], caveats: Mapping[str, Mapping[str, Any]]) -> Answer:
    """The answer of comparisons within runs, which lead."""
    headline, lead = lead_of(within, (), is_amount=False)
    pair = lead[0].pair
    facts = {"field": pair.field, "base": pair.label.rpartition(" vs ")[2]}
    return Answer(headline, facts, lead, within, caveats)


def _caveats(trials: SweepTrials) -> dict[str, Mapping[str, Any]]:
    """Which trials are not compared."""
    caveats: dict[str, Mapping[str, Any]] = {}
    lost = [f"{describe_configuration(row.factors)} ({row.outcome})" for row in trials.rows if not row.counted]
    if lost:
        caveats["not_measured"] = {"names": lost}
    apart = [describe_configuration(row.factors) for row in trials.rows if row.independent_ranks]
    if apart:
        caveats["independent"] = {"names": apart}
    return caveats


def axis_that_varies(trials: SweepTrials, rows: Sequence[Row], name: str) -> str:
    """The field that was asked about; if only one of its values was measured, another that varies; empty without one.

    The batch that stays fixed stands for the other one. A field that follows from another, as world_size does from
    ranks_per_machine, distinguishes no trials alone.
    """
    if name == "batch_per_rank" and trials.fixed_batch_field == "global_batch":
        name = "global_batch"
    if count_values(rows, name) > 1:
        return name
    others = [other for other in trials.varied if count_values(rows, other) > 1]
    alone = [other for other in others if trials.axis_of(other, rows).groups]
    return next(iter([*alone, *others]), "")


def _without_measures(trials: SweepTrials) -> Headline:
    counted = [row for row in trials.rows if row.counted]
    if not counted:
        return "none_ok"
    return "independent" if all(row.independent_ranks for row in counted) else "searched"


def why_of(lead: Comparison) -> StepChange | None:
    """How the steps of two trials differ; None where that is not known, or hardly, and they are not distinguished."""
    pair = lead[0].pair
    change = None if pair.is_within_trial else step_change(pair.row, pair.base)
    if change is None:
        return None
    is_large = abs(change.step_ms - change.base_ms) >= _EXPLAINED_FROM * change.base_ms
    return change if is_large or lead[0].sign else None


def _of_field(trials: SweepTrials, axis: Axis, measures: Sequence[Measure]) -> list[Comparison]:
    """The field that was asked about, in each group: the last value against the first, or each choice."""
    found: list[Comparison] = []
    for group in axis.groups:
        first, *others = group
        for row in others[-1:] if axis.is_ordered else others:
            found.append(comparison_of(pair_along(axis, group, row, first), measures, trials.until))
        found += _of_best_two(trials, axis, group, measures)
    return [comparison for comparison in found if comparison]


def _of_best_two(
    trials: SweepTrials, axis: Axis, group: Sequence[Row], measures: Sequence[Measure]
) -> list[Comparison]:
    """The best choice against the next one, where both are better than the baseline by the first measure."""
    if axis.is_ordered or axis.name in RANKS:
        return []
    base, *others = group
    compared = [comparison_of(pair_along(axis, group, row, base), measures[:1], trials.until) for row in others]
    better = [comparison[0] for comparison in compared if comparison and comparison[0].is_better]
    better.sort(key=lambda effect: -effect.size)
    if len(better) < 2:
        return []
    pair = pair_along(axis, group, better[0].pair.row, better[1].pair.row)
    return [comparison_of(pair, measures, trials.until)]


def _steps(trials: SweepTrials, axis: Axis, measures: Sequence[Measure]) -> list[Comparison]:
    """The steps of a field of numbers in each group."""
    if not axis.is_ordered:
        return []
    found = [step for group in axis.groups for step in steps_of(axis, group, measures, trials.until)]
    return [comparison for comparison in found if comparison]


def _of_other_fields(
    trials: SweepTrials, rows: Sequence[Row], asked: Axis, measures: Sequence[Measure]
) -> list[Comparison]:
    """What the other fields that vary do, each on average over its groups."""
    found: list[Comparison] = []
    for name in trials.varied:
        is_derived = name in BATCHES and (asked.name in BATCHES or name != trials.fixed_batch_field)
        if name == asked.name or is_derived or count_values(rows, name) < 2:
            continue
        axis = trials.axis_of(name, rows)
        by_label: dict[str, list[Pair]] = {}
        for group in axis.groups:
            first, *others = group
            for row in others[-1:] if axis.is_ordered else others:
                pair = pair_along(axis, group, row, first)
                by_label.setdefault(pair.label, []).append(pair)
        found += [comparison_of_mean(pairs, measures, trials.until) for pairs in by_label.values()]
    return [comparison for comparison in found if comparison]


def _best_of_all(trials: SweepTrials, rows: Sequence[Row], measures: Sequence[Measure]) -> list[Comparison]:
    """The trial with the best result against the next one, where a sweep asks about combinations of fields.

    Also where each choice has its learning rate.
    """
    result = next((measure for measure in measures if measure.is_result), None)
    names = [name for name in trials.varied if name not in BATCHES and count_values(rows, name) > 1]
    is_one_field = trials.is_asked and _TUNED not in names
    if is_one_field or result is None or len(names) < 2:
        return []
    known = [row for row in rows if result.is_of(row)]
    best = sorted(known, key=result.goodness, reverse=True)[:2]
    if len(best) < 2:
        return []
    row, base = best
    label = f"best: {describe_configuration(row.factors)} vs next: {describe_configuration(base.factors)}"
    found = comparison_of(Pair("", label, "", row, base), measures, trials.until)
    return [found] if found else []
