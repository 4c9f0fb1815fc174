"""The answer of a sweep whose trials change fields one at a time, or some together: what each change does."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.findings.answer import Answer, why_of
from dmls_ray.analysis.findings.effects import compare_each
from dmls_ray.analysis.findings.lead import lead_of
from dmls_ray.analysis.findings.measures import Measure
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.axis import Pair, group_by_other_factors
from dmls_ray.analysis.trials.trial import Trial, describe_changes

_GAP = Measure(metric="accuracy_gap", kind="points", noun="gap to training", better=-1)
"""By how much the accuracy on training samples is above that on test samples."""


def answer_on_changes(trials: SweepTrials) -> Answer:
    """What each change does to results, to their gap to training and to speed; the best one first."""
    measures = trials.questions.measures(trials.compared)
    runs = [run for trial in trials.compared for run in trial.counted]
    # Runs without an evaluation of training samples have their accuracy as a mean over the epoch, with dropout on.
    if all("train_eval_accuracy" in run.metrics for run in runs):
        measures.append(_GAP)
    measures.sort(key=lambda measure: (not measure.is_result, measure is not _GAP))
    comparisons = compare_each(changed_pairs(trials), measures, trials.until)
    if not comparisons:
        return Answer("not_compared")
    comparisons.sort(key=lambda comparison: -comparison[0].contrast.centre * comparison[0].measure.better)
    headline, lead = lead_of(comparisons, (), is_amount=False)
    return Answer(headline, {}, lead, comparisons, why=why_of(lead))


def changed_pairs(trials: SweepTrials) -> list[Pair]:
    """Each trial with a change against the one without any that is equal to it otherwise.

    Where each trial has a change, against the one whose values were given first.
    """
    pairs, changed = [], trials.changed
    groups = group_by_other_factors(trials.compared, changed)
    for group in groups:
        changes = {describe_changes(trial, changed): trial for trial in group}
        base_change = ""
        if base_change not in changes:
            base_change = next((change for change, trial in changes.items() if _has_first_values(trial, changed)), "")
        base = changes.pop(base_change, None)
        if base is None:
            continue
        shared = {}
        if len(groups) > 1:
            shared = {name: value for name, value in base.factors.items() if name not in changed}
        for change, trial in changes.items():
            pairs.append(Pair(trial, base, "change", value=change, base_value=base_change, shared=shared))
    return pairs


def _has_first_values(trial: Trial, names: Sequence[str]) -> bool:
    """Whether a trial has of each of these fields the value that was given first."""
    return all([*trial.given.get(name, ())][:1] == [trial.factors.get(name)] for name in names)
