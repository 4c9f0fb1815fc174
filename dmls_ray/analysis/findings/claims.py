"""The comparisons that the question of a sweep is about. A sweep is repeated until these are decided."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from dmls_ray.analysis.findings.effects import Effect, Pair, pair_along
from dmls_ray.analysis.findings.measures import Measure
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.axis import Axis
from dmls_ray.analysis.trials.groups import group_by_other_factors
from dmls_ray.analysis.trials.labels import describe_changes, describe_configuration
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.config.until import Until


def claims_of(trials: SweepTrials, varied: Sequence[str], changed: Sequence[str] = ()) -> list[Effect]:
    """The comparisons that the question of a sweep is about.

    Neighbours and ends of an axis of numbers, each choice against the default, each number of ranks against the
    smallest, each change against the trial without any; and what a workload compares within runs.

    Args:
        trials: the trials.
        varied: the fields that were given several values.
        changed: fields that were changed one at a time.
    """
    rows = compared_rows(trials)
    if changed:
        return _claims_of_pairs(trials, changed_pairs(rows, changed))
    axes = [trials.axis_of(name, rows) for name in varied if name in trials.varied]
    claims = _claims_of_pairs(trials, itertools.chain.from_iterable(map(_axis_pairs, axes)))
    within = itertools.chain.from_iterable(trials.questions.comparisons_within_trials(trials))
    return [*claims, *(effect for effect in within if effect.measure.is_judged)]


def claims_against(best: Row, others: Sequence[Row], measures: Sequence[Measure], until: Until) -> list[Effect]:
    """The comparisons of some trials with the best one.

    Args:
        best: a trial.
        others: other trials of its sweep.
        measures: what they are compared by.
        until: when they are decided.
    """
    claims = []
    for row in others:
        label = f"{describe_configuration(row.factors)} vs {describe_configuration(best.factors)}"
        claims += _claims(Pair("", label, "", row, best), measures, until)
    return claims


def compared_rows(trials: SweepTrials) -> list[Row]:
    """The trials that are compared: those with a run that ended ok, whose ranks trained one model together."""
    return [row for row in trials.rows if row.counted and not row.independent_ranks]


def _axis_pairs(axis: Axis) -> Iterator[Pair]:
    """The pairs of an axis: neighbours and ends of numbers, else each value against the baseline."""
    for group in axis.groups:
        compared = [(row, group[0]) for row in group[1:]]
        if axis.is_ordered:
            compared = [(row, base) for base, row in itertools.pairwise(group)] + compared[-1:]
        for row, base in compared:
            yield pair_along(axis, group, row, base)


def changed_pairs(rows: Sequence[Row], changed: Sequence[str]) -> Iterator[Pair]:
    """Each trial with a change against the one without any that is equal to it otherwise."""
    groups = group_by_other_factors(rows, changed)
    for group in groups:
        bases = [row for row in group if not describe_changes(row, changed)]
        if not bases:
            continue
        shared = {name: value for name, value in bases[0].factors.items() if name not in changed}
        where = describe_configuration(shared) if len(groups) > 1 else ""
        for row in group:
            change = describe_changes(row, changed)
            if change:
                yield Pair(change.partition("=")[0], change, where, row, bases[0])


def _claims_of_pairs(trials: SweepTrials, pairs: Iterable[Pair]) -> list[Effect]:
    claims: dict[tuple[str, str], list[Effect]] = {}
    for pair in pairs:
        key = (pair.row.trial_id, pair.base.trial_id)
        if key not in claims:
            claims[key] = _claims(pair, trials.questions.measures([pair.row, pair.base]), trials.until)
    return [*itertools.chain.from_iterable(claims.values())]


def _claims(pair: Pair, measures: Sequence[Measure], until: Until) -> list[Effect]:
    claims = []
    for measure in measures:
        contrast = measure.against(pair.row, pair.base)
        if contrast is not None and not contrast.is_once:
            claims.append(Effect(pair, measure, contrast, until))
    return claims
