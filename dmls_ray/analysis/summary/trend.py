"""What an axis of numbers does to a measure: its trend per doubling and where it stops, or its first change."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.stats.intervals import is_above, is_below
from dmls_ray.analysis.summary.axis import Axis
from dmls_ray.analysis.summary.effects import NOT_COMPARED, Placed, at_places, range_of
from dmls_ray.analysis.summary.measures import Measure
from dmls_ray.analysis.table.row import Row

_FEWEST_OF_TREND = 3
"""Values that make a trend; two have a ratio."""
_REFUTED = 0.2
"""Level of the test of a line's fit. Few blocks show a curve badly, and steps are right where a line fits, too."""
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
    """The factor per doubling, else those of the first and the last step; or from the first value to the last."""
    if not all(_has_trend([row.factors[axis.name] for row in group]) for group in groups):
        return _ends(axis, groups, measure, "from the first value to the last")
    lines = {axis.place(group): _line(axis, group, measure) for group in groups}
    slopes = [(place, line[0]) for place, line in lines.items() if line is not None]
    misfits = [line[1] for line in lines.values() if line is not None]
    if slopes and all(misfit is not None and misfit >= _REFUTED for misfit in misfits):
        texts = [_spanned(slopes, measure, "per doubling")]
    else:
        first, last = [group[:2] for group in groups], [group[-2:] for group in groups]
        texts = [_ends(axis, first, measure, "in the first step"), _ends(axis, last, measure, "in the last step")]
    shapes = {axis.place(group): _shape(axis, group, measure) for group in groups}
    if len(set(shapes.values())) == 1:
        shapes = {"": next(iter(shapes.values()))}
    steps = "; ".join(dict.fromkeys(texts))
    return ", ".join([steps, *(f"{shape}{place}" for place, shape in shapes.items() if shape)])


def _line(axis: Axis, group: Sequence[Row], measure: Measure) -> tuple[Contrast, float | None] | None:
    """The factor per doubling, and how well it fits."""
    doublings = [math.log2(row.factors[axis.name]) for row in group]
    return group[0].comparisons.line(group, doublings, measure.name, is_ratio=True)


def _ends(axis: Axis, groups: Sequence[Sequence[Row]], measure: Measure, otherwise: str) -> str:
    """The factor from the first trial of each group to its last.

    Args:
        axis: the field.
        groups: the trials.
        measure: what is compared.
        otherwise: what it spans, where not all groups have the same ends.
    """
    compared = [(axis.place(group), measure.against(group[-1], group[0])) for group in groups]
    placed = [(place, change) for place, change in compared if change is not None]
    spans = {f"from {axis.value(group[0])} to {axis.value(group[-1])}" for group in groups}
    return _spanned(placed, measure, spans.pop() if len(spans) == 1 else otherwise) if placed else NOT_COMPARED


def _spanned(placed: Sequence[Placed], measure: Measure, span: str) -> str:
    text = at_places(placed, measure) if len(placed) <= _MOST_PLACES else range_of(placed, measure)
    return f"{text} {span}" if len(placed) == 1 else f"{span} {text}"


def _has_trend(values: Sequence[float]) -> bool:
    """Whether a factor per doubling was measured: values that span less than one would be extrapolated."""
    return len(values) >= _FEWEST_OF_TREND and min(values) > 0 and max(values) >= 2 * min(values)


def _shape(axis: Axis, group: Sequence[Row], measure: Measure) -> str:
    """Whether the last step of a group goes on as the whole does, else from where on a step does not."""
    steps = [measure.against(row, base) for base, row in itertools.pairwise(group)]
    ends = measure.against(group[-1], group[0])
    if is_above(ends, 1):
        verb, other, goes_on = "rising", "falling", [is_above(step, 1) for step in steps]
    elif is_below(ends, 1):
        verb, other, goes_on = "falling", "rising", [is_below(step, 1) for step in steps]
    else:
        return ""
    if goes_on[-1]:
        return f"still {verb} at {axis.value(group[-1])}"
    knee = len(goes_on) - next(place for place, goes in enumerate([*reversed(goes_on), True]) if goes)
    step = steps[knee]
    by = "" if step is None else f" ({axis.value(group[knee + 1])}: {measure.effect(step)})"
    turns = step is not None and measure.sign(step) != 0
    return f"{other if turns else 'not distinguished'} beyond {axis.value(group[knee])}{by}"


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
    best, gain = max(compared, key=lambda item: item[1].centre)
    if best is not last and gain.centre > 0:
        verdict = "" if measure.sign(gain) else ", not distinguished"
        text += f", highest at {axis.value(best)}: {measure.effect(gain)}{verdict}"
    return text
