"""The headline of an answer: at most 25 words on what matters most, at the first place of the table."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.summary.axis import Axis
from dmls_ray.analysis.summary.effects import why_not_compared
from dmls_ray.analysis.summary.effort import training_caveat
from dmls_ray.analysis.summary.measures import Measure
from dmls_ray.analysis.summary.phrases import as_sentence
from dmls_ray.analysis.table.row import Row

Compared = Sequence[tuple[Row, Contrast]]
"""Trials, and how each compares with the baseline."""


def headline_of(axis: Axis, measures: Sequence[Measure], verb: str, losers: Collection[str]) -> str:
    """What an axis does to the first measure in its first group, and what this costs by the second one.

    Args:
        axis: the field.
        measures: the most important first.
        verb: what a trial does: `train`.
        losers: trial_id of those that lose accuracy: speed alone recommends none of these.
    """
    group = axis.groups[0]
    base, *rest = group
    main, *others = measures
    compared = _compared(main, rest, base)
    if not compared:
        reason = why_not_compared(main, rest[-1], base)
        return _sentence(axis.place(group), f"{axis.subject(rest[-1])} and {axis.value(base)} are {reason}")
    learned = _compared(others[0], rest, base) if others else []
    if not any(main.sign(contrast) for _, contrast in compared) and (text := _learned(axis, base, learned, others)):
        return _sentence(axis.place(group), f"{text}; {_undecided(axis, base, compared, main)}")
    kept = [item for item in compared if item[0].trial_id not in losers]
    which = f" that keeps {others[0].words}" if others and 0 < len(kept) < len(compared) else ""
    row, text = _gain(axis, base, kept or compared, main, verb, which)
    cost = _cost(axis, row, base, learned, others[0]) if others else ""
    n = compared[-1][1].n
    chance = "" if compared[-1][1].low is not None else f" (n={n}, so perhaps by chance)"
    return _sentence(axis.place(group), f"{text}{cost}{chance}")


def _sentence(place: str, text: str) -> str:
    text = f"{place.strip()}, {text}" if place else text
    return as_sentence(text)


def _compared(measure: Measure, rows: Sequence[Row], base: Row) -> Compared:
    """Those that can be compared: with intervals, if any has one, since a single run may be chance."""
    found = [(row, contrast) for row in rows if (contrast := measure.against(row, base)) is not None]
    return [item for item in found if item[1].low is not None] or found


def _learned(axis: Axis, base: Row, compared: Compared, measures: Sequence[Measure]) -> str:
    """Which value gains most accuracy, or else loses most, where none differs by the main measure."""
    decided = [item for item in compared if measures[0].sign(item[1])]
    if not decided or measures[0].kind != "points":
        return ""
    gains = [item for item in decided if item[1].centre > 0]
    row, contrast = max(gains or decided, key=lambda item: measures[0].size(item[1]))
    return f"{_claim(axis, row, base, contrast, measures[0], '')}{_higher(axis, base, gains, compared, measures[0])}"


def _gain(axis: Axis, base: Row, compared: Compared, measure: Measure, verb: str, which: str) -> tuple[Row, str]:
    """The trial that the headline is about, and how it compares with the baseline by the first measure.

    Args:
        axis: the field.
        base: the baseline.
        compared: the others.
        measure: the first measure.
        verb: what a trial does.
        which: what these have in common, where they are not all: ` that keeps test accuracy`.
    """
    more, less = ([item for item in compared if measure.sign(item[1]) == sign] for sign in (1, -1))
    if not more and not less:
        return compared[-1][0], _undecided(axis, base, compared, measure, which)
    if measure.name != "speed":
        row, contrast = compared[-1] if axis.is_ordered else max(more + less, key=lambda item: measure.size(item[1]))
        if not measure.sign(contrast):
            return row, _undecided(axis, base, compared[-1:], measure)
        return row, _claim(axis, row, base, contrast, measure, verb)
    if more:
        row, contrast = max(more, key=lambda item: item[1].centre)
        return row, f"{_claim(axis, row, base, contrast, measure, verb)}{_higher(axis, base, more, compared, measure)}"
    if len(less) == len(compared) > 1 and not axis.is_ordered:
        row, contrast = max(less, key=lambda item: item[1].centre)
        return base, f"{axis.subject(base)} is the fastest: {_claim(axis, row, base, contrast, measure, verb)}"
    row, contrast = less[-1] if axis.is_ordered else min(less, key=lambda item: item[1].centre)
    return row, _claim(axis, row, base, contrast, measure, verb)


def _undecided(axis: Axis, base: Row, compared: Compared, measure: Measure, which: str = "") -> str:
    """That no trial differs from the baseline beyond chance, with the comparison that differs most."""
    row, contrast = max(compared, key=lambda item: measure.size(item[1]))
    verdict = measure.verdict([more for _, more in compared], axis.until)
    verdict = f"{verdict} {'to' if verdict == 'equal' else 'from'} {axis.value(base)} in {measure.noun}"
    if len(compared) == 1:
        are = "are" if axis.is_plural(row) else "is"
        return f"{axis.subject(row)} {are} {verdict}: {measure.effect(contrast)}"
    subject = f"{'every' if verdict.startswith('equal') else 'no'} {axis.noun}{which} is"
    return f"{subject} {verdict.removeprefix('not ')}, the farthest {axis.value(row)}: {measure.effect(contrast)}"


def _higher(axis: Axis, base: Row, decided: Compared, compared: Compared, measure: Measure) -> str:
    """The trial with a larger mean than any of those that are above the baseline beyond chance; empty without one."""
    row, contrast = max(compared, key=lambda item: item[1].centre)
    if not decided or any(row is item for item, _ in decided):
        return ""
    return f" ({axis.value(row)}, {measure.effect(contrast)}, is not distinguished from {axis.value(base)})"


def _claim(axis: Axis, row: Row, base: Row, contrast: Contrast, measure: Measure, verb: str) -> str:
    s = "" if axis.is_plural(row) else "s"
    amount = measure.effect(contrast, interval=False)
    if measure.name == "speed":
        return f"{axis.subject(row)} {verb}{s} {amount} as fast as {axis.value(base)}"
    if measure.name == "total_s":
        return f"{axis.subject(row)} take{s} {amount} as long as {axis.value(base)}"
    return f"{axis.subject(row)} {_effect(row, base, contrast, measure, s)} against {axis.value(base)}"


def _effect(row: Row, base: Row, contrast: Contrast, measure: Measure, s: str) -> str:
    """What a trial gains or loses; of what it loses, what may explain it."""
    amount = measure.effect(contrast, interval=False)
    caveat = training_caveat(row, base, measure.name) if measure.is_worse(contrast) else ""
    if measure.kind == "points":
        return f"{'lose' if contrast.centre < 0 else 'gain'}{s} {amount.lstrip('+-')} of {measure.words}{caveat}"
    if measure.kind == "ratio":
        return f"{'has' if s else 'have'} {amount} the {measure.words}{caveat}"
    return f"change{s} {measure.words} by {amount}"


def _cost(axis: Axis, row: Row, base: Row, compared: Compared, measure: Measure) -> str:
    """What the trial of the headline, or else another one, gains or loses by the second measure."""
    if not compared:
        return ""
    mine = next((contrast for item, contrast in compared if item is row), None)
    if mine is not None and measure.sign(mine):
        return f" and {_effect(row, base, mine, measure, '' if axis.is_plural(row) else 's')}"
    others = [item for item in compared if measure.sign(item[1])]
    if others and (mine is None or not axis.is_ordered):
        other, contrast = max(others, key=lambda item: measure.size(item[1]))
        return f", and {axis.value(other)} {_effect(other, base, contrast, measure, 's')}"
    if mine is None:
        return f"; {_undecided(axis, base, compared, measure)}"
    if measure.is_equal(mine, axis.until):
        return f", at equal {measure.words}"
    return f", {measure.words} not distinguished: {measure.effect(mine)}"
