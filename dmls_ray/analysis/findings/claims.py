"""The comparisons that the question of a sweep is about. A sweep is repeated until these are decided."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.findings.effects import Effect, compare, judged
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.groups import group_by_other_factors
from dmls_ray.analysis.trials.labels import describe_changes, describe_configuration


def claims_of(trials: SweepTrials, varied: Sequence[str], changed: Sequence[str] = ()) -> list[Effect]:
    """The comparisons that the question of a sweep is about.

    Neighbours and ends of an axis of numbers, each choice against the default, each number of ranks against the
    smallest, each change against the trial without any; and what a workload compares within runs.

    Args:
        trials: the trials.
        varied: the fields that were given several values.
        changed: fields that were changed one at a time.
    """
    if changed:
        return judged(_compare(trials, changed_pairs(trials, changed)))
    pairs: list[Pair] = []
    for name in varied:
        if name in trials.varied:
            axis = trials.axis_of(name)
            for group in axis.groups:
                pairs += axis.steps(group) + axis.ends(group)
    return judged(_compare(trials, pairs) + trials.questions.comparisons_within_trials(trials))


def _compare(trials: SweepTrials, pairs: Sequence[Pair]) -> list[Sequence[Effect]]:
    """The effects of each pair, once, on the measures of its trials."""
    comparisons: dict[tuple[str, str], Sequence[Effect]] = {}
    for pair in pairs:
        key = (pair.trial.trial_id, pair.base.trial_id)
        if key not in comparisons:
            measures = trials.questions.measures([pair.trial, pair.base])
            comparisons[key] = compare([pair], measures, trials.until)
    return list(comparisons.values())


def changed_pairs(trials: SweepTrials, changed: Sequence[str]) -> list[Pair]:
    """Each trial with a change against the one without any that is equal to it otherwise."""
    pairs = []
    groups = group_by_other_factors(trials.compared, changed)
    for group in groups:
        changes = {describe_changes(trial, changed): trial for trial in group}
        base = changes.pop("", None)
        if base is None:
            continue
        shared = {name: value for name, value in base.factors.items() if name not in changed}
        where = describe_configuration(shared) if len(groups) > 1 else ""
        for change, trial in changes.items():
            pairs.append(Pair(change.partition("=")[0], change, where, trial, base))
    return pairs
