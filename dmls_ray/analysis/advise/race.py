"""Which trials of a race are beaten for its aim, and take no part in further blocks."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.advise.candidates import compare_scores, judge_trials, model_of
from dmls_ray.analysis.advise.objective import Objective, Request, settle
from dmls_ray.analysis.advise.objectives import OBJECTIVES
from dmls_ray.analysis.findings.decide import Race
from dmls_ray.analysis.findings.effects import compare_each, judged
from dmls_ray.analysis.findings.measures import Measure, measure_of
from dmls_ray.analysis.stats.intervals import is_above
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.compare import Comparisons
from dmls_ray.analysis.trials.trial import Trial


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
            left.append(Pair("", f"{item.name} vs {best.name}", "", item.row, best.row))
    return Race(beaten, judged(compare_each(left, measures, table.until)))


def _target(table: Table, aim: str) -> float | None:
    """The target accuracy that all runs have, where the objective takes one."""
    targets = {record.config.get("target_accuracy") for row in table.rows for record in row.records}
    if len(targets) != 1 or OBJECTIVES[aim].is_learned:
        return None
    return targets.pop()


def _measures(table: Table, objective: Objective, rows: Sequence[Trial]) -> list[Measure]:
    """By what the trials of a race are compared: what decides its aim, or all measures where it is none of them."""
    if objective.is_learned:
        return [measure_of(objective.metric, "points")]
    measures = table.questions.measures(rows)
    if objective.name == "throughput":
        return [measure for measure in measures if measure.kind in ("speed", "duration")]
    return measures
