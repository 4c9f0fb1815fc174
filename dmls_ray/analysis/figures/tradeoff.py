"""Accuracy against time and memory, and the Pareto front of the trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmls_ray.analysis.advise.pareto import front_of
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import MAX_SERIES, limit_items, measured_series, trial_labels
from dmls_ray.analysis.findings.losers import level_text
from dmls_ray.analysis.memory import MEMORY
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.analysis.words import join_names

_ACCURACY = "test_accuracy"
_COSTS = {"total_s": ("run time (s)", "less time")} | {
    name: (f"{words} of a rank (MiB)", "less memory") for name, words in MEMORY.items()
}
"""Metric -> (label of its axis, aim)."""
_BEATEN = "not on the front"
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
    rows, best = front.rows, front.places
    if len(rows) < 2 or len(front.axes) < 2 or _ACCURACY not in front.axes:
        return None
    # Memory is drawn even if it hardly differs, so that the reader sees it.
    costs = [cost for cost in _COSTS if cost in (*front.axes, front.memory)]
    names = trial_labels(table, rows)
    panels = []
    for cost in costs:
        levels = [_level(row, cost) for row in rows]
        far = max(levels) > _FAR * min(levels) > 0
        x = Axis(_COSTS[cost][0], log=far, from_zero=not far)
        series = _series(names, rows, best, cost)
        panels.append(Panel(x=x, y=Axis("test accuracy (fraction of samples)"), series=series))
    goal = ", ".join(_COSTS[cost][1] for cost in costs if cost in front.axes)
    memory_note = " Memory hardly differs and is left out." if front.is_of_like_memory else ""
    is_apart = any(row.independent_ranks for row in table.rows)
    apart_note = " Trials whose ranks did not train one model together are left out." if is_apart else ""
    lost = join_names([f"{loss.pair.label} ({level_text(loss)})" for loss in front.losers])
    lost_note = f" Not on it for what they lose: {lost}." if lost else ""
    return Chart(
        name="tradeoff",
        title=f"Pareto front of {goal} and more accuracy",
        panels=panels,
        notes=(
            f"On the front are {len(best)} of {len(rows)} trials: no other is at least as good in {goal} and more "
            "accuracy, and better in one. It is of means: what is closer than its interval may change "
            f"sides.{memory_note}{apart_note}{lost_note}",
        ),
    )


def _series(names: Sequence[str], rows: Sequence[Trial], best: Sequence[int], cost: str) -> list[Series]:
    beaten = sorted(set(range(len(rows))).difference(best))
    others, _ = limit_items(beaten, "trials", _MOST_OTHERS)
    groups = [(names[place], [place]) for place in best] if len(best) < MAX_SERIES else [("on the front", list(best))]
    series = []
    for name, places in [*groups, (_BEATEN, others)]:
        shown = [rows[place] for place in places]
        points = [(_level(row, cost), row, row.by_block(_ACCURACY)) for row in shown]
        for measured in measured_series(name, points, quantity="share", metric=_ACCURACY):
            texts = [f"{names[place]}, {text}" for place, text in zip(places, measured.texts, strict=True)]
            series.append(dataclasses.replace(measured, texts=texts, muted=name == _BEATEN))
    return series


def _level(row: Trial, measure: str) -> float:
    level = row.value_of(measure)
    assert level is not None, measure
    return level
