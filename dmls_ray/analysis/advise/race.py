"""Which trials of a race are beaten for its aim, and take no part in further blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmls_ray.analysis.advise.candidates import compare_scores, judge_trials, model_of
from dmls_ray.analysis.advise.objective import Objective, Request, settle
from dmls_ray.analysis.advise.objectives import OBJECTIVES
from dmls_ray.analysis.stats.intervals import is_above
from dmls_ray.analysis.summary.claims import Claim, claims_against
from dmls_ray.analysis.summary.measures import DURATION, SPEED, Measure
from dmls_ray.analysis.table.comparisons import Comparisons
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row


@dataclass(frozen=True)
class Race:
    """The trials of a race after some blocks."""

    beaten: Sequence[Row] = ()
    """Those whose interval against the best one excludes that they are as good, and those that lose accuracy."""
    claims: Sequence[Claim] = ()
    """The others against the best one."""


def race_for(table: Table, aim: str) -> Race:
    """Which trials are beaten for an aim.

    Args:
        table: the trials, of which one has a result at least.
        aim: name of the objective.

    Raises:
        ConfigError: the runs cannot be judged by it.
    """
    objective = settle(OBJECTIVES[aim], table, Request(target=_target(table, aim)))
    candidates, excluded = judge_trials(table, objective, comparisons=Comparisons(table.rows, looks="race"))
    if not candidates:
        return Race()
    best, others = candidates[0], candidates[1:]
    measures = _measures(table, objective, [item.row for item in candidates])
    beaten = [row for row, reason in excluded if reason.kind == "loses"]
    left = []
    model = model_of(table, objective, candidates, looks="race")
    for item in others:
        # Times of runs that did not reach the target are too short to beat others.
        if best.all_reached and is_above(compare_scores(objective, model, item, best), 0):
            beaten.append(item.row)
        else:
            left.append(item.row)
    return Race(beaten, claims_against(best.row, left, measures))


def _target(table: Table, aim: str) -> float | None:
    """The target accuracy that all runs have, where the objective takes one."""
    targets = {record.config.get("target_accuracy") for row in table.rows for record in row.records}
    if len(targets) != 1 or OBJECTIVES[aim].is_learned:
        return None
    return targets.pop()


def _measures(table: Table, objective: Objective, rows: Sequence[Row]) -> list[Measure]:
    """By what the trials of a race are compared: what decides its aim, or all measures where it is none of them."""
    if objective.is_learned:
        return [Measure(objective.metric, "points")]
    measures = table.presentation.measures(rows)
    if objective.name == "throughput":
        return [measure for measure in measures if measure in (SPEED, DURATION)]
    return measures
