"""`Answer`: the comparisons that answer the question of a sweep, and the one that its headline is about."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dmls_ray.analysis.findings.claims import compared_rows
from dmls_ray.analysis.findings.effects import Comparison, Pair, compare, compare_mean, pair_along
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
    varied = axis_that_varies(trials, rows, name)
    axis = trials.axis_of(varied, rows if varied else ())
    if name in trials.varied and count_values(rows, name) < 2 and not within:
        caveats["one_value"] = {"field": name}
    candidates = within or _against_first(trials, axis, measures)
    if not candidates:
        return Answer(_without_pairs(axis), {"field": axis.noun}, caveats=caveats)
    is_amount = axis.is_ordered or axis.name in RANKS
    headline, lead = lead_of(candidates, losers_of(trials, rows), is_amount=is_amount and not within)
    comparisons = [*within, *_of_field(trials, axis, measures)]
    others = _of_other_fields(trials, rows, axis, measures)
    room = max(MOST_ROWS - len(comparisons) - len(others), 0)
    comparisons += [*_steps(trials, axis, measures)[:room], *others]
    if lead[0].key not in [comparison[0].key for comparison in comparisons]:
        comparisons.insert(0, lead)
    return Answer(headline, facts_of(lead), lead, comparisons, caveats, why_of(lead))


def facts_of(lead: Comparison) -> dict[str, str]:
    """The field of a comparison, and the value that it is compared with."""
    pair = lead[0].pair
    return {"field": RANKS.get(pair.field, pair.field), "base": pair.label.rpartition(" vs ")[2]}


def lead_of(
    candidates: Sequence[Comparison], losers: Collection[str], *, is_amount: bool
) -> tuple[Headline, Comparison]:
    """The headline, and the comparison that it is about.

    The one that gains most by the first measure by which any gains beyond chance. If none gains: of amounts, the last
    one; of choices, the one that is nearest to a gain, or that differs most where none differs beyond chance.

    Args:
        candidates: the values of a field against its baseline; one at least.
        losers: trial_id of those that lose accuracy: none of these is recommended, unless all lose.
        is_amount: whether the values are amounts, as batches or ranks, rather than choices.
    """
    kept = [item for item in candidates if item[0].pair.row.trial_id not in losers] or list(candidates)
    gains: dict[str, list[tuple[float, Comparison]]] = {}
    for comparison in kept:
        for effect in comparison:
            # Without a better direction, any difference counts.
            if effect.measure.is_outcome and effect.sign and effect.gain >= 0:
                gains.setdefault(effect.measure.name, []).append((effect.size, comparison))
    effects = [effect for comparison in kept for effect in comparison if effect.measure.is_outcome]
    for name in dict.fromkeys(effect.measure.name for effect in effects):
        if name in gains:
            return "pair", max(gains[name], key=lambda item: item[0])[1]
    if is_amount or len(candidates) == 1:
        return "pair", kept[-1]
    if any(effect.sign for effect in effects):
        return "none_better", max(kept, key=lambda item: item[0].contrast.centre * item[0].measure.better)
    return "none_differs", max(kept, key=lambda item: item[0].size)


def why_of(lead: Comparison) -> StepChange | None:
    """How the steps of two trials differ; None where that is not known, or hardly, and they are not distinguished."""
    pair = lead[0].pair
    change = None if pair.is_within_trial else step_change(pair.row, pair.base)
    if change is None:
        return None
    is_large = abs(change.step_ms - change.base_ms) >= _EXPLAINED_FROM * change.base_ms
    return change if is_large or lead[0].sign else None


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


def _without_measures(trials: SweepTrials) -> Headline:
    counted = [row for row in trials.rows if row.counted]
    if not counted:
        return "none_ok"
    return "independent" if all(row.independent_ranks for row in counted) else "searched"


def _without_pairs(axis: Axis) -> Headline:
    if not axis.name:
        return "one_trial"
    return "not_compared" if axis.groups else "no_pair"


def _against_first(trials: SweepTrials, axis: Axis, measures: Sequence[Measure]) -> list[Comparison]:
    """Each value of a field against the first one, in the first group."""
    found: list[Comparison] = []
    for group in axis.groups[:1]:
        for row in group[1:]:
            found.append(compare(pair_along(axis, group, row, group[0]), measures, trials.until))
    return [comparison for comparison in found if comparison and comparison[0].measure.is_outcome]


def _of_field(trials: SweepTrials, axis: Axis, measures: Sequence[Measure]) -> list[Comparison]:
    """The field that was asked about, in each group: the last value against the first, or each choice."""
    found = [compare(pair, measures, trials.until) for pair in _ends(axis)]
    return [comparison for comparison in found if comparison]


def _ends(axis: Axis) -> list[Pair]:
    """The last value of each group against its first, or, of choices, each against the baseline."""
    pairs = []
    for group in axis.groups:
        others = group[-1:] if axis.is_ordered else group[1:]
        pairs += [pair_along(axis, group, row, group[0]) for row in others]
    return pairs


def _steps(trials: SweepTrials, axis: Axis, measures: Sequence[Measure]) -> list[Comparison]:
    """The first and the last step of a field of numbers in each group."""
    found: list[Comparison] = []
    for group in axis.groups:
        if axis.is_ordered and len(group) > 2:
            for row, base in ((group[1], group[0]), (group[-1], group[-2])):
                found.append(compare(pair_along(axis, group, row, base), measures, trials.until))
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
        by_label: dict[str, list[Pair]] = {}
        for pair in _ends(trials.axis_of(name, rows)):
            by_label.setdefault(pair.label, []).append(pair)
        found += [compare_mean(pairs, measures, trials.until) for pairs in by_label.values()]
    return [comparison for comparison in found if comparison]
