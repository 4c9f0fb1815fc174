"""The answer of a search: which configuration reached the best value of a metric, among how many."""

from __future__ import annotations

from typing import Any

from dmls_ray.analysis.findings.answer import Answer
from dmls_ray.analysis.findings.effects import level_of
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.outcome import Outcome

_MOST = 3
"""Configurations that the answer names; the table has all."""


def best_first(trials: SweepTrials, metric: str, *, minimizes: bool) -> list[Trial]:
    """The trials that reported a metric, the best first; without those that were stopped early if others were not."""
    reported = [trial for trial in trials.rows if metric in trial.estimates]
    # A value of an early epoch is not compared with that of a whole training.
    finished = [trial for trial in reported if not trial.is_stopped]
    return sorted(finished or reported, key=lambda trial: trial.estimates[metric].centre, reverse=not minimizes)


def answer_of_search(trials: SweepTrials, metric: str, *, minimizes: bool) -> Answer:
    """Which configurations reached the best values of a metric, among how many.

    Args:
        trials: the trials of the search.
        metric: what was searched for.
        minimizes: whether less of it is better.
    """
    ranked = best_first(trials, metric, minimizes=minimizes)
    if not ranked:
        return Answer("not_reported", {"metric": metric})
    comparisons = []
    for trial in ranked[:_MOST]:
        value = trial.estimates[metric]
        comparisons.append([level_of(metric, describe_configuration(trial.factors), trial, value, value.n)])
    facts = {"metric": metric, "which": "least" if minimizes else "highest", "count": len(ranked)}
    caveats: dict[str, dict[str, Any]] = {"best_of_many": {}}
    records = [record for trial in trials.rows for record in trial.records]
    stopped = [record for record in records if record.is_stopped and record.outcome is Outcome.OK]
    if stopped:
        caveats["stopped_early"] = {"count": len(stopped), "asked": len(records)}
    return Answer("best_found", facts, comparisons[0], comparisons, caveats)
