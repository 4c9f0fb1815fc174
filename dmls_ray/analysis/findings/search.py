"""The answer of a search: which configuration reached the best value of a metric, among how many."""

from __future__ import annotations

from typing import Any

from dmls_ray.analysis.findings.answer import Answer
from dmls_ray.analysis.findings.claims import Pair
from dmls_ray.analysis.findings.effects import Effect
from dmls_ray.analysis.findings.measures import Level
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.records.outcome import Outcome

_MOST = 3
"""Configurations that the answer names; the table has all."""


def best_first(trials: SweepTrials, metric: str, *, minimizes: bool) -> list[Row]:
    """The trials that reported a metric, the best first; without those that were stopped early if others were not."""
    reported = [row for row in trials.rows if row.value_of(metric) is not None]
    # A value of an early epoch is not compared with that of a whole training.
    finished = [row for row in reported if not row.is_stopped]
    return sorted(finished or reported, key=lambda row: _level_of(row, metric), reverse=not minimizes)


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
    effects = [_level(row, metric) for row in ranked[:_MOST]]
    facts = {"metric": metric, "which": "least" if minimizes else "highest", "count": len(ranked)}
    comparisons = [[effect] for effect in effects]
    caveats: dict[str, dict[str, Any]] = {"best_of_many": {}}
    records = [record for row in trials.rows for record in row.records]
    stopped = [record for record in records if record.stopped_epoch is not None and record.outcome is Outcome.OK]
    if stopped:
        caveats["stopped_early"] = {"count": len(stopped), "asked": len(records)}
    return Answer("best_found", facts, comparisons[0], comparisons, caveats)


def _level(row: Row, metric: str) -> Effect:
    pair = Pair("", describe_configuration(row.factors), "", row, row)
    value = row.estimate(metric)
    assert value is not None, metric
    return Effect(Level(metric), pair, "", value.centre, value.low, value.high, value.n, "level")


def _level_of(row: Row, name: str) -> float:
    level = row.value_of(name)
    assert level is not None, name
    return level
