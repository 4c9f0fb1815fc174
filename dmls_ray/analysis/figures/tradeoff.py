"""Accuracy against time and memory, and the Pareto front of the trials."""

from __future__ import annotations

from functools import partial

from dmls_ray.analysis.advise.pareto import Front, front_of
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.drawn_trials import MAX_SERIES, limit_items, trial_labels
from dmls_ray.analysis.figures.series import Plotted, plotted_metric
from dmls_ray.analysis.findings.losers import level_text
from dmls_ray.analysis.memory import MEMORY
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.analysis.words import join_names

_ACCURACY = "test_accuracy"
_AIMS = {"total_s": "less time"} | dict.fromkeys(MEMORY, "less memory")
"""Metric -> aim."""
_MOST_OTHERS = 1000
"""Maximum number of trials drawn that are not on the front; more would be a grey cloud of megabytes."""
_FAR = 20
"""Ratio of highest to lowest cost above which the axis is logarithmic."""


def chart(table: Table) -> Chart | None:
    """The figure; None unless two trials are compared by their test accuracy and have a cost in which they differ.

    The front is that of `advise`, from `pareto.front_of`.
    """
    if all(measure.name != _ACCURACY for measure in table.questions.measures(table.rows)):
        return None
    front = front_of(table, _ACCURACY)
    if len(front.rows) < 2 or len(front.axes) < 2 or _ACCURACY not in front.axes:
        return None
    # Memory is drawn even if it hardly differs, so that the reader sees it.
    costs = [cost for cost in _AIMS if cost in (*front.axes, front.memory)]
    names = {row.trial_id: name for row, name in zip(front.rows, trial_labels(table, front.rows), strict=True)}
    accuracy = plotted_metric(_ACCURACY)
    panels = []
    for cost in costs:
        levels = [_level(row, cost) for row in front.rows]
        is_far = max(levels) > _FAR * min(levels) > 0
        x = Axis(plotted_metric(cost).y.label, log=is_far, from_zero=not is_far)
        panels.append(Panel(x=x, y=accuracy.y, series=_series(front, names, accuracy, cost)))
    goal = ", ".join(_AIMS[cost] for cost in costs if cost in front.axes)
    notes = [
        f"On the front are {len(front.best)} of {len(front.rows)} trials: no other is at least as good in {goal} and "
        "more accuracy, and better in one. It is of means: what is closer than its interval may change sides."
    ]
    if front.is_of_like_memory:
        notes.append("Memory hardly differs and is left out.")
    if any(row.independent_ranks for row in table.rows):
        notes.append("Trials whose ranks did not train one model together are left out.")
    if front.losers:
        lost = join_names([f"{loss.pair.label} ({level_text(loss)})" for loss in front.losers])
        notes.append(f"Not on the front for what they lose: {lost}.")
    return Chart(name="tradeoff", title=f"Pareto front of {goal} and more accuracy", panels=panels, notes=notes)


def _series(front: Front, names: dict[str, str], accuracy: Plotted, cost: str) -> list[Series]:
    """The trials on the front, each with its name if they are few, and the others."""
    best = front.best
    on_front = {row.trial_id for row in best}
    others, _ = limit_items([row for row in front.rows if row.trial_id not in on_front], "trials", _MOST_OTHERS)
    groups = {"on the front": best}
    if len(best) < MAX_SERIES:
        groups = {names[row.trial_id]: [row] for row in best}
    draw = partial(accuracy.series, describe=lambda row: names[row.trial_id])
    series: list[Series] = []
    for name, rows in groups.items():
        series += draw(name, [(_level(row, cost), row) for row in rows])
    return series + draw("not on the front", [(_level(row, cost), row) for row in others], muted=True)


def _level(row: Trial, metric: str) -> float:
    level = row.value_of(metric)
    assert level is not None, metric
    return level
