"""What each change of a sweep, made alone, does against the trial without any."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.findings.answer import Answer, lead_of, why_of
from dmls_ray.analysis.findings.effects import compare_each
from dmls_ray.analysis.findings.measures import Measure
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.groups import group_by_other_factors
from dmls_ray.analysis.trials.labels import describe_changes, describe_configuration
from dmls_ray.config.grid import BASELINE

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
    pairs = changed_pairs(trials, trials.changed)
    comparisons = compare_each(pairs, measures, trials.until)
    if not comparisons:
        return Answer("not_compared" if pairs else "no_baseline")
    comparisons.sort(key=lambda comparison: -comparison[0].contrast.centre * comparison[0].measure.better)
    first_place = [comparison for comparison in comparisons if comparison[0].pair.where == comparisons[0][0].pair.where]
    headline, lead = lead_of(first_place, (), is_amount=False)
    return Answer(headline, {"field": "change", "base": BASELINE}, lead, comparisons, why=why_of(lead))


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
