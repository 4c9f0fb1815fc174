"""Which trials of a race are beaten for its aim, and take no part in further blocks."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.advise.objective import Objective, Request, candidates, settle
from dmls_ray.analysis.advise.objectives import OBJECTIVES
from dmls_ray.analysis.findings.claims import claims_against
from dmls_ray.analysis.findings.decide import Race
from dmls_ray.analysis.findings.measures import Duration, Measure, Points, Speed
from dmls_ray.analysis.stats.intervals import is_above
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.compare import Comparisons
from dmls_ray.analysis.trials.trial import Row


def race_for(table: Table, aim: str) -> Race:
    """Which trials are beaten for an aim.

    Args:
        table: the trials, of which one has a result at least.
        aim: name of the objective.

    Raises:
        ConfigError: the runs cannot be judged by it.
    """
    kind = OBJECTIVES[aim]
    targets = {record.config.get("target_accuracy") for row in table.rows for record in row.records}
    target = targets.pop() if len(targets) == 1 and not kind.is_learned else None
    objective = settle(kind, table, Request(target=target))
    comparisons = Comparisons(table.rows, looks="race")
    able, unable = candidates(table, objective, comparisons=comparisons)
    losers = [row for row, reason in unable if reason.loser is not None]
    if not able:
        return Race()
    best = able[0]
    measures = _measures(table, objective, [item.row for item in able])
    if not best.is_whole:  # times of runs that did not get there are too short to beat others
        return Race(losers, claims_against(best.row, [item.row for item in able[1:]], measures))
    model = objective.model(table, able, looks="race")
    beaten = [item.row for item in able[1:] if is_above(objective.compared(item, best, model), 0)]
    left = [item.row for item in able[1:] if item.row not in beaten]
    return Race([*losers, *beaten], claims_against(best.row, left, measures))


def _measures(table: Table, objective: Objective, rows: Sequence[Row]) -> list[Measure]:
    """By what the trials of a race are compared: what decides its aim, or all measures where it is none of them."""
    if objective.is_learned:
        return [Points(objective.measure)]
    measures = table.questions.measures(rows)
    by_speed: list[Measure] = [measure for measure in measures if isinstance(measure, Speed | Duration)]
    return by_speed if objective.name == "throughput" else measures
