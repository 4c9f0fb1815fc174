"""What each change of a sweep, made alone, does against the trial without any."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.findings.answer import Answer, why_of
from dmls_ray.analysis.findings.claims import changed_pairs, compared_rows
from dmls_ray.analysis.findings.effects import comparison_of
from dmls_ray.analysis.findings.lead import lead_of
from dmls_ray.analysis.findings.measures import Measure, Points
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.config.grid import BASELINE


class Gap(Points):
    """By how much the accuracy on training samples is above that on test samples."""

    noun = "gap to training"
    better = -1


_GAP = Gap("accuracy_gap")


def answer_on_changes(trials: SweepTrials, changed: Sequence[str]) -> Answer:
    """What each change does to results, to their gap to training and to speed; the best one first.

    Args:
        trials: the trials of the sweep.
        changed: the fields that were changed one at a time.
    """
    rows = compared_rows(trials)
    pairs = list(changed_pairs(rows, changed))
    measures = _measures(trials, rows)
    found = [comparison_of(pair, measures, trials.until) for pair in pairs]
    comparisons = [comparison for comparison in found if comparison and comparison[0].measure.is_outcome]
    if not comparisons:
        return Answer("not_compared" if pairs else "no_baseline")
    comparisons.sort(key=lambda comparison: -comparison[0].value * comparison[0].measure.better)
    first_place = [comparison for comparison in comparisons if comparison[0].where == comparisons[0][0].where]
    headline, lead = lead_of(first_place, (), is_amount=False)
    return Answer(headline, {"field": "change", "base": BASELINE}, lead, comparisons, why=why_of(lead))


def _measures(trials: SweepTrials, rows: Sequence[Row]) -> list[Measure]:
    """Results first: a change is made for these."""
    measures = trials.questions.measures(rows)
    results = [measure for measure in measures if measure.is_result]
    others = [measure for measure in measures if not measure.is_result]
    # Runs without an evaluation of training samples have their accuracy as a mean over the epoch, with dropout on.
    has_gap = all(run.train_eval_accuracy is not None for row in rows for run in row.counted)
    return [*results, *([_GAP] if has_gap and any(map(_GAP.is_of, rows)) else []), *others]
