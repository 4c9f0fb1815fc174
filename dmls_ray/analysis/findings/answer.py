"""`Answer`: the comparisons that answer the question of a sweep, and the one that its headline is about."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.analysis.findings.effects import Comparison, compare, compare_each, level_of
from dmls_ray.analysis.findings.lead import lead_of, lossless_of, worst_of
from dmls_ray.analysis.findings.losers import losers_of
from dmls_ray.analysis.findings.measures import Measure
from dmls_ray.analysis.findings.overfitting import Overfitting
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.above_linear import describe_above_linear
from dmls_ray.analysis.trials.axis import BATCHES, RANKS, Axis, Pair, count_values
from dmls_ray.analysis.trials.common_metrics import memory_metric
from dmls_ray.analysis.trials.disturbances import describe_held_clocks, describe_other_work, describe_throttling
from dmls_ray.analysis.trials.steps import StepChange, samples_of_step, step_change
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.config.options import Until
from dmls_ray.records.returned import is_number

MOST_ROWS = 8
"""Comparisons of a table: more are not read at a glance."""
_SETTLES_AFTER = 200
"""Steps below which the allocator may still add to a resident set."""
_EXPLAINED_FROM = 0.1
"""Share of a step from which on its change is explained, where the speeds are not distinguished."""


@dataclass(frozen=True)
class Missing:
    """Values of the field that was asked about, which were not measured, so that it is not compared."""

    field: str
    values: Sequence[Any]
    outcomes: Sequence[str]
    """The outcomes of their runs."""
    reason: str
    """Why the first one was not measured; empty where that is not known."""


@dataclass(frozen=True)
class Answer:
    """What the runs of a sweep say."""

    headline: str
    """Which sentence the headline is: a key of `words.HEADLINES`."""
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
    beside: Sequence[Comparison] = ()
    """What each of the other fields that vary does."""
    missing: Missing | None = None
    """The values that were asked for and not measured, where only one value was."""
    overfitting: Sequence[Overfitting] = ()
    """The trials that overfit."""
    is_without_overfitting: bool = False
    """Whether test losses are known of each run to its end, and none is shown to overfit."""
    worst: Comparison = ()
    """Where none is better: the one that is worse by most, which `why` is about then."""
    lossless: Comparison = ()
    """Where the lead of an amount gains by one measure and loses by another: the value that gains most without a loss
    beyond chance."""


def answer_along(trials: SweepTrials, name: str) -> Answer:
    """What a field does to speed, accuracy, memory and whatever else is measured, and what the other fields do.

    Args:
        trials: the trials of the sweep.
        name: the field that the sweep asks about.
    """
    compared = trials.compared
    measures = trials.questions.measures(compared)
    within = trials.questions.comparisons_within_trials(trials)
    axis = trials.axis_of(axis_that_varies(trials, name))
    missing = _missing(trials, name)
    other_axes = [trials.axis_of(other) for other in _other_fields(trials, axis)]
    caveats = _caveats(trials, [axis, *other_axes])
    candidates = within
    if axis.groups and not within:
        candidates = compare_each(axis.against_first(axis.groups[0]), measures, trials.until)
    if not candidates:
        if len(compared) == 1:
            headline = "one_together" if "independent" in caveats else "one_trial"
            return Answer(headline, caveats=caveats, missing=missing)
        is_any_ok = any(trial.counted for trial in trials.rows)
        return Answer("not_compared" if is_any_ok else "none_ok", caveats=caveats)
    is_amount = axis.is_ordered or axis.name in RANKS
    losers = losers_of(trials, compared)
    headline, lead = lead_of(candidates, losers, is_amount=is_amount and not within)
    if headline != "pair" and len(axis.groups) > 1:
        # What holds of the first place must hold of all.
        pairs = [pair for group in axis.groups for pair in axis.against_first(group)]
        candidates = compare_each(pairs, measures, trials.until)
        headline, lead = lead_of(candidates, losers, is_amount=False)
    worst = worst_of(candidates) if headline == "none_better" else ()
    lossless = lossless_of(lead, candidates) if is_amount else ()

    ends: list[Comparison] = []
    steps: list[Comparison] = []
    for group in axis.groups:
        ends += compare_each(axis.ends(group), measures, trials.until)
        between = axis.steps(group)
        steps += compare_each(between[:1] + between[-1:], measures, trials.until)
    beside, others = [], []
    for other in other_axes:
        found = _on_average(trials, other, measures)
        others += found
        if found:
            beside.append(lead_of(found, losers, is_amount=other.is_ordered or other.name in RANKS)[1])
    if shared := _mean_of_each(_ranks_that_share_a_batch(trials), measures, trials.until):
        others += shared
        beside.append(shared[-1])
    room = MOST_ROWS - len(within) - len(ends) - len(others)
    if room >= 0:
        comparisons = [*within, *ends, *steps[:room], *others]
    else:
        # Each field has its row before any has one for each place.
        comparisons = [*within, *_on_average(trials, axis, measures), *others, *ends]
    if lead[0].key not in [comparison[0].key for comparison in comparisons[:MOST_ROWS]]:
        comparisons.insert(0, lead)
    why = why_of(worst or lead)
    return Answer(headline, {}, lead, comparisons, caveats, why, beside, missing, lossless=lossless, worst=worst)


def _missing(trials: SweepTrials, name: str) -> Missing | None:
    """The values of a field that have no run that ended ok, where at most one value has."""
    measured = {repr(trial.factors.get(name)) for trial in trials.rows if trial.counted}
    lost = [trial for trial in trials.rows if repr(trial.factors.get(name)) not in measured]
    if not lost or len(measured) != 1:
        return None
    values = {repr(trial.factors.get(name)): trial.factors.get(name) for trial in lost}
    outcomes = dict.fromkeys(trial.outcome for trial in lost)
    return Missing(name, list(values.values()), list(outcomes), lost[0].records[0].reason)


def why_of(lead: Comparison) -> StepChange | None:
    """How the steps of two trials differ beyond chance; None where that is not known, or explains no difference."""
    pair = lead[0].pair
    change = None if pair.trial is pair.base else step_change(pair.trial, pair.base)
    if change is None:
        return None
    of_time = next((effect for effect in lead if effect.measure.kind in ("speed", "duration")), lead[0])
    if of_time.sign and of_time.contrast.low is not None:
        return change
    # Of equal samples the speed is that of the steps: what is undecided of it has no cause.
    is_large = abs(change.step_ms - change.base_ms) >= _EXPLAINED_FROM * change.base_ms
    return change if is_large and change.samples != 1 else None


def axis_that_varies(trials: SweepTrials, name: str) -> str:
    """The field that was asked about; if only one of its values was measured, another that varies; empty without one.

    The batch that stays fixed stands for the other one. A field that follows from another, as world_size does from
    ranks_per_machine, distinguishes no trials alone.
    """
    if name == "batch_per_rank" and trials.fixed_batch_field == "global_batch":
        name = "global_batch"
    if count_values(trials.compared, name) > 1:
        return name
    others = [other for other in trials.varied if count_values(trials.compared, other) > 1]
    alone = [other for other in others if trials.axis_of(other).groups]
    return next(iter([*alone, *others]), "")


def _caveats(trials: SweepTrials, axes: Sequence[Axis]) -> dict[str, Mapping[str, Any]]:
    """Which trials are not compared, or not as they would be on a quiet machine at full clocks.

    Args:
        trials: the trials of the sweep.
        axes: of all fields that vary.
    """
    lost, apart = [], []
    for trial in trials.rows:
        name = describe_configuration(trial.factors)
        if not trial.counted:
            lost.append(f"{name} ({trial.outcome})")
        elif trial.independent_ranks:
            apart.append(name)
    sessions = [pair for item in axes for pair in _pairs_of(item) if pair.ran_apart]
    caveats: dict[str, Sequence[str | Pair]] = {
        "not_measured": lost,
        "independent": apart,
        "sessions": sessions,
        "held_clocks": describe_held_clocks(trials.rows),
        "throttling": describe_throttling(trials.rows),
        "above_linear": describe_above_linear(trials.rows),
        "other_work": describe_other_work(trials.rows),
        "resident": _short_runs(trials.compared) if memory_metric(trials.compared) == "host_mem_mib" else [],
    }
    return {kind: {"names": names} for kind, names in caveats.items() if names}


def _short_runs(trials: Sequence[Trial]) -> list[str]:
    """The trials whose runs made so few steps that their resident set still grows, or may."""
    short = []
    for trial in trials:
        steps = trial.by_block("steps_made").values()
        if steps and min(steps) < _SETTLES_AFTER:
            short.append(describe_configuration(trial.factors))
    return short


def _pairs_of(axis: Axis) -> Iterator[Pair]:
    """The values of an axis against its first one, and neighbours, each pair once."""
    for group in axis.groups:
        pairs = (*axis.against_first(group), *axis.steps(group))
        yield from {pair.key: pair for pair in pairs}.values()


def _other_fields(trials: SweepTrials, asked: Axis) -> Iterator[str]:
    """The fields that vary besides the one that was asked about, and do not follow from it."""
    for name in trials.varied:
        is_derived = name in BATCHES and (asked.name in BATCHES or name != trials.fixed_batch_field)
        if name != asked.name and not is_derived and count_values(trials.compared, name) > 1:
            yield name


def _on_average(trials: SweepTrials, axis: Axis, measures: Sequence[Measure]) -> list[Comparison]:
    """What a field does on average over the groups of its axis."""
    pairs = [pair for group in axis.groups for pair in axis.ends(group)]
    return _mean_of_each(pairs, measures, trials.until)


def _mean_of_each(pairs: Iterable[Pair], measures: Sequence[Measure], until: Until) -> list[Comparison]:
    """The comparisons of some pairs, of those with equal values their mean."""
    by_values: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        by_values.setdefault(pair.key, []).append(pair)
    found = [compare(alike, measures, until) for alike in by_values.values()]
    return [comparison for comparison in found if comparison]


def _ranks_that_share_a_batch(trials: SweepTrials) -> list[Pair]:
    """More ranks against the fewest whose steps have the same samples, since the batch of a rank is that much smaller.

    With an equal batch of a rank, more ranks train with a larger one in all, which is another training. Empty where the
    comparison of ranks is this one: where steps have the same samples on any number of ranks.
    """
    by_ranks = sorted(trials.compared, key=lambda trial: trial.world_size)
    pairs = []
    for base, trial in itertools.product(by_ranks, by_ranks):
        samples = samples_of_step(trial)
        if base.world_size > by_ranks[0].world_size or trial.world_size <= base.world_size:
            continue
        if samples is None or samples != samples_of_step(base):
            continue
        differing = _differing_fields(trial, base)
        if not differing:
            return []
        if len(differing) == 1 and _is_divided(differing[0], trial, base):
            shared = {"samples_per_step": samples}
            pairs.append(Pair(trial, base, "one_batch", "world_size", trial.world_size, base.world_size, shared))
    return pairs


def _differing_fields(trial: Trial, base: Trial) -> list[str]:
    """The fields in which two trials differ besides their ranks, and what only counts with several of them."""
    specs = trial.workload.specs()
    differing = []
    for name, value in trial.factors.items():
        of_ranks = name in RANKS or name == "backend" or (name in specs and specs[name].setting.ddp_only)
        if not of_ranks and repr(value) != repr(base.factors[name]):
            differing.append(name)
    return differing


def _is_divided(name: str, trial: Trial, base: Trial) -> bool:
    """Whether a field of a trial is that of the other one, divided by how many times more ranks it has."""
    value, whole = trial.factors[name], base.factors[name]
    return is_number(value) and is_number(whole) and value * trial.world_size == whole * base.world_size


_MOST = 3
"""Configurations that the answer names; the table has all."""


def best_first(trials: SweepTrials, metric: str) -> list[Trial]:
    """The trials of a search that reported a metric; without those that were stopped early if others were not."""
    reported = [trial for trial in trials.rows if metric in trial.estimates]
    # A value of an early epoch is not compared with that of a whole training.
    return [trial for trial in reported if not trial.is_stopped] or reported


def answer_of_search(trials: SweepTrials) -> Answer:
    """Which configurations reached the best values of what was searched for, among how many.

    Args:
        trials: the trials of the search, the best first: with `best_by`.
    """
    assert trials.best_by is not None
    metric, minimizes = trials.best_by
    ranked = best_first(trials, metric)
    if not ranked:
        return Answer("not_reported", {"metric": metric})
    comparisons = []
    for trial in ranked[:_MOST]:
        value = trial.estimates[metric]
        comparisons.append([level_of(Pair(trial, trial, "trial"), metric, value, value.n)])
    facts = {"metric": metric, "count": len(ranked)}
    return Answer(
        "least_found" if minimizes else "highest_found", facts, comparisons[0], comparisons, {"best_of_many": {}}
    )
