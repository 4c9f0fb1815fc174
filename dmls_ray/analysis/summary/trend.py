"""What an axis of numbers does to a measure: its trend per doubling and where it stops, or its first change."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from dmls_ray.analysis.stats.intervals import is_above, is_below
from dmls_ray.analysis.summary.axis import Axis
from dmls_ray.analysis.summary.effects import NOT_COMPARED, Placed, at_places, range_of
from dmls_ray.analysis.summary.measures import Measure
from dmls_ray.analysis.table.row import Row

_FEWEST_OF_TREND = 3
"""Values that make a trend; two have a ratio."""
_MOST_PLACES = 2
"""Groups of an axis whose trends are given one by one."""


def trends_of(axis: Axis, measure: Measure) -> str:
    """What an ordered axis does to a measure, in each group."""
    groups = [known for group in axis.groups if len(known := [row for row in group if measure.is_of(row)]) > 1]
    if not groups:
        return f"not compared: in no place do two values have {measure.words}"
    if measure.kind == "ratio":
        return _trends(axis, groups, measure)
    if len(groups) <= _MOST_PLACES:
        return "; ".join(_changes(axis, group, measure) for group in groups)
    placed = [
        (axis.place(group), more) for group in groups if (more := measure.against(group[-1], group[0])) is not None
    ]
    return f"{range_of(placed, measure)} from the first value to the last" if placed else NOT_COMPARED


def _trends(axis: Axis, groups: Sequence[Sequence[Row]], measure: Measure) -> str:
    """The factor per doubling, or from the first value to the last, and where it stops."""
    is_trend = all(_has_trend([row.factors[axis.name] for row in group]) for group in groups)
    placed: list[Placed] = []
    for group in groups:
        if is_trend:
            places = [math.log2(row.factors[axis.name]) for row in group]
            change = group[0].comparisons.slope(group, places, measure.name, is_ratio=True)
        else:
            change = measure.against(group[-1], group[0])
        if change is not None:
            placed.append((axis.place(group), change))
    if not placed:
        return NOT_COMPARED
    ends = (axis.value(groups[0][place]) for place in (0, -1))
    span = "per doubling" if is_trend else f"from {' to '.join(ends)}"
    text = at_places(placed, measure) if len(placed) <= _MOST_PLACES else range_of(placed, measure)
    text = f"{text} {span}" if len(placed) == 1 else f"{span} {text}"
    shapes = {axis.place(group): _shape(axis, group, measure) for group in groups} if is_trend else {}
    if len(set(shapes.values())) == 1:
        shapes = {"": next(iter(shapes.values()))}
    return ", ".join([text, *(f"{shape}{place}" for place, shape in shapes.items() if shape)])


def _has_trend(values: Sequence[float]) -> bool:
    """Whether a factor per doubling was measured: values that span less than one would be extrapolated."""
    return len(values) >= _FEWEST_OF_TREND and min(values) > 0 and max(values) >= 2 * min(values)


def _shape(axis: Axis, group: Sequence[Row], measure: Measure) -> str:
    """Where the trend of a group stops: from where on the next value has no gain beyond chance."""
    steps = [measure.against(row, base) for base, row in itertools.pairwise(group)]
    ends = measure.against(group[-1], group[0])
    if is_above(ends, 1):
        verb, goes_on = "rising", [is_above(step, 1) for step in steps]
    elif is_below(ends, 1):
        verb, goes_on = "falling", [is_below(step, 1) for step in steps]
    else:
        return ""
    if goes_on[-1]:
        return f"still {verb} at {axis.value(group[-1])}"
    knee = len(goes_on) - next(place for place, goes in enumerate([*reversed(goes_on), True]) if goes)
    step = steps[knee]
    by = "" if step is None else f" ({axis.value(group[knee + 1])}: {measure.effect(step)})"
    gain = "gain" if verb == "rising" else "change"
    return f"no {gain} beyond {axis.value(group[knee])} that is more than chance{by}"


def _changes(axis: Axis, group: Sequence[Row], measure: Measure) -> str:
    """From the first trial of a group to the last, where the first change beyond chance is, and the best between."""
    first, *others = group
    last = others[-1]
    text = (
        f"{first.text(measure.name)} at {axis.value(first)} to {last.text(measure.name)} at {axis.value(last)}"
        f"{axis.place(group)}"
    )
    compared = [(row, more) for row in others if (more := measure.against(row, first)) is not None]
    if not compared:
        return f"{text}, {NOT_COMPARED}"
    if compared[-1][0] is last:
        text += f", {measure.effect(compared[-1][1])}"
    decided = [item for item in compared if measure.sign(item[1])]
    if not decided:
        return f"{text}, {measure.verdict([more for _, more in compared], axis.until)}"
    row, more = decided[0]
    if len(others) > 1 and row is not last:
        clearly = "" if more.low is None else "clearly "
        text += f", first {clearly}{'higher' if measure.sign(more) > 0 else 'lower'} at {axis.value(row)}"
    best, gain = max(decided, key=lambda item: item[1].centre)
    if best is not last and measure.sign(gain) > 0:
        text += f", highest at {axis.value(best)}: {measure.effect(gain)}"
    return text
