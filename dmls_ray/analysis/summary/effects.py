"""What the values of an axis do to a measure, each against the baseline: `2 ranks: 0.74x [0.70, 0.78] as fast as 1`."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.summary.axis import Axis
from dmls_ray.analysis.summary.measures import Measure
from dmls_ray.analysis.table.row import Row

_MOST_WITH_INTERVALS = 2
"""Places of which each has its comparison with an interval; of more, their mean has one."""

NOT_COMPARED = "not compared: no block has both on one machine and device with the same versions"


def why_not_compared(measure: Measure, *rows: Row) -> str:
    """Why some trials are not compared by a measure: not all have it, or never in one block."""
    if all(measure.is_of(row) for row in rows):
        return NOT_COMPARED
    return f"not compared: not all of them have {measure.words}"


Placed = tuple[str, Contrast]
"""Where two trials were compared, as ` on 2 ranks`, and how."""
_Effect = tuple[str, Row, Row, Contrast]
"""Where, the trial, its baseline, and how they compare."""


def effects_of(axis: Axis, measure: Measure, *, only_decided: bool = False) -> str:
    """What each value of an axis does to a measure, against the baseline of its group; empty where none has both.

    Args:
        axis: the field; of an ordered one, the last value against the first.
        measure: what is compared.
        only_decided: leave out a value of which no comparison is beyond chance, and name the measure.
    """
    by_value: dict[str, list[_Effect]] = {}
    is_missing = False
    for group in axis.groups:
        first, *others = group
        for row in others[-1:] if axis.is_ordered else others:
            contrast = measure.against(row, first)
            is_missing |= contrast is None and measure.is_of(row) and measure.is_of(first)
            if contrast is not None:
                by_value.setdefault(axis.value(row), []).append((axis.place(group), row, first, contrast))
    if not by_value:
        return NOT_COMPARED if is_missing and not only_decided else ""
    is_one = len(by_value) == 1
    decided = {value for value, items in by_value.items() if any(measure.sign(item[-1]) for item in items)}
    if only_decided:
        by_value = {value: items for value, items in by_value.items() if value in decided}
    if not by_value:
        return ""
    bases = dict.fromkeys(axis.value(group[0]) for group in axis.groups)
    against = next(iter(bases)) if len(bases) == 1 else "the first value"
    words = {"speed": "as fast as", "total_s": "as long as"}.get(measure.name, "against")
    subject = f"{measure.words} " if only_decided else ""
    if measure.kind == "points" and not decided:
        level = f"{axis.groups[0][0].text(measure.name)} with {against}{axis.place(axis.groups[0])}"
        verdict = measure.verdict([item[-1] for items in by_value.values() for item in items], axis.until)
        subject = f"{level}; {verdict}: "
    if is_one:
        (items,) = by_value.values()
        return f"{subject}{_of_one_value(items, measure, f' {words} {against}', has_range=not only_decided)}"
    on_average = "on average " if max(map(len, by_value.values())) > 1 else ""
    texts = [f"{value} {_mean(items, measure)}" for value, items in by_value.items()]
    return f"{subject}{on_average}{', '.join(texts)} {words} {against}"


def _of_one_value(items: Sequence[_Effect], measure: Measure, against: str, *, has_range: bool) -> str:
    """How one value compares with the baseline: in each place, or the mean and from where to where."""
    placed = [(place, contrast) for place, _, _, contrast in items]
    if len(placed) <= _MOST_WITH_INTERVALS and has_range:
        return f"{at_places(placed, measure)}{against}"
    span = range_of(placed, measure) if has_range else ""
    range_ = f" ({span})" if " to " in span else ""
    return f"{_mean(items, measure)}{against}{range_}" + ("" if range_ or len(items) == 1 else " on average")


def _mean(items: Sequence[_Effect], measure: Measure) -> str:
    """The mean over several places, with its interval; without a block that has all of them, from where to where."""
    pairs = [(row, base) for _, row, base, _ in items]
    mean = items[0][1].comparisons.mean(pairs, measure.name, is_ratio=measure.kind == "ratio")
    return range_of([(place, more) for place, _, _, more in items], measure) if mean is None else measure.effect(mean)


def at_places(placed: Sequence[Placed], measure: Measure) -> str:
    """Comparisons of the same two values in several places, each with its interval."""
    return ", ".join(f"{measure.effect(contrast)}{place}" for place, contrast in placed)


def range_of(placed: Sequence[Placed], measure: Measure) -> str:
    """The least and the largest of some comparisons, without their intervals."""
    least, *_, largest = sorted([*placed, *placed], key=lambda item: item[1].centre)
    texts = [measure.effect(contrast, interval=False) for _, contrast in (least, largest)]
    if texts[0] == texts[1]:
        return texts[0]
    first, second = least[0].rpartition(" "), largest[0].rpartition(" ")
    # ` at batch_per_rank 16` and ` at batch_per_rank 128`: the name once.
    second_place = f" at {second[2]}" if first[0] == second[0] and first[0].startswith(" at ") else largest[0]
    return f"{texts[0]}{least[0]} to {texts[1]}{second_place}"
