"""Which trials of a race are beaten for its aim, and take no part in further blocks."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.advise.candidates import judge_trials, model_of, rank_against
from dmls_ray.analysis.advise.objectives import OBJECTIVES, Objective, Request, settle, target_of_runs
from dmls_ray.analysis.findings.decide import Race
from dmls_ray.analysis.findings.effects import compare_each, judged
from dmls_ray.analysis.findings.measures import Measure, measure_of
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
    target = None if OBJECTIVES[aim].is_learned else target_of_runs(table)
    objective = settle(aim, table, Request(target=target))
    candidates, excluded = judge_trials(table, objective, comparisons=Comparisons(table.rows, looks="race"))
    if not candidates:
        return Race()
    best, others = candidates[0], candidates[1:]
    measures = _measures(table, objective, [item.row for item in candidates])
    beaten = [row for row, reason in excluded if reason.kind == "loses"]
    left: list[Pair] = []
    model = model_of(table, objective, candidates, looks="race")
    for item in others:
        if rank_against(best, item, objective, model).verdict == "worse":
            beaten.append(item.row)
        else:
            left.append(Pair("", f"{item.name} vs {best.name}", "", item.row, best.row))
    return Race(beaten, judged(compare_each(left, measures, table.until)))


def _measures(table: Table, objective: Objective, rows: Sequence[Trial]) -> list[Measure]:
    """By what the trials of a race are compared: what decides its aim, or all measures where it is none of them."""
    if objective.is_learned:
        return [measure_of(objective.metric, "points")]
    measures = table.questions.measures(rows)
    if objective.name == "throughput":
        return [measure for measure in measures if measure.kind in ("speed", "duration")]
    return measures
