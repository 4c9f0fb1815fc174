"""How numbers are written in tables and answers: with the digits that their interval supports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmls_ray.analysis.stats.intervals import Interval, is_above, is_below

_MOST_DECIMALS = 6
"""A number that needs more decimals is written with an exponent."""
_FAR = 10
"""Factor beyond which the ends of an interval are not written: they say nothing."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class NumberFormat:
    """How a kind of number is written."""

    decimals: tuple[tuple[float, int], ...]
    """The least size of a number, and the usual decimals from there on; the largest first. Without any, four digits."""
    signed: bool = False
    """Whether positive numbers have a sign, too."""

    def usual(self, value: float) -> int:
        """Return the number of decimals without an interval, and the largest number with one."""
        for least, count in self.decimals:
            if abs(value) >= least:
                return count
        if abs(value) >= 1e4 or value.is_integer() or not math.isfinite(value):
            return 0
        return 3 - math.floor(math.log10(abs(value)))

    def __call__(self, value: float) -> str:
        """Return the number with its usual decimals."""
        return self.exactly(value, self.usual(value))

    def exactly(self, value: float, decimals: int) -> str:
        """Return the number with exactly `decimals` decimals; negative for whole tens and hundreds."""
        if not math.isfinite(value):
            return str(value)
        sign = "+" if self.signed else ""
        if decimals > _MOST_DECIMALS and value:
            digits = decimals + math.floor(math.log10(abs(value)))
            return f"{value:{sign}.{max(digits, 0)}e}"
        return f"{round(value, decimals) + 0.0:{sign},.{max(decimals, 0)}f}"  # no -0


def format_interval(value: Interval | None, form: NumberFormat, *, null: float | None = None) -> str:
    """Return a value with its interval; the value alone without an interval; empty without a value.

    Args:
        value: the value.
        form: its format.
        null: the value that means no difference. An end that differs from it is written so, however little it does:
            the interval that is read contains it if and only if the interval does.

    An end that is more than 10 times the value, or less than a tenth, is written as that: `1 [<0.1, >10]`.
    """
    if value is None:
        return ""
    if value.low is None or value.high is None:
        return form(value.centre)
    if value.low >= 0 and math.inf > value.high > _FAR * value.centre > 0:
        return _far_interval(value, form, null)
    low, high = value.low, value.high
    decimals = _supported(value, form, (value.centre, low, high))
    if null is not None:
        decimals, (low, high) = _apart_from(null, (low, high), decimals)
    return f"{form.exactly(value.centre, decimals)} [{form.exactly(low, decimals)}, {form.exactly(high, decimals)}]"


def _far_interval(value: Interval, form: NumberFormat, null: float | None) -> str:
    """A value with an interval whose upper end is far from it."""
    low = value.ends[0]
    low_text = format_value(Interval(low, low, low), form, null=null)
    if low < value.centre / _FAR and (null is None or low <= null):
        low_text = f"<{_first_digit(value.centre / _FAR, up=True):,.10g}"
    bound, high = _first_digit(_FAR * value.centre), value.ends[1]
    high_text = f">{bound:,.10g}"
    if null is not None and bound < null:
        high_text = format_value(Interval(high, high, high), form, null=null)
    centre = format_value(value, form, null=null)
    if not float(centre.replace(",", "")):
        centre = f"{value.centre:.1g}"
    return f"{centre} [{low_text}, {high_text}]"


def _first_digit(value: float, *, up: bool = False) -> float:
    """A positive number, rounded down to its first digit, or up."""
    unit = 10.0 ** math.floor(math.log10(value))
    if up:
        return math.ceil(value / unit - _ROUNDING) * unit
    return math.floor(value / unit + _ROUNDING) * unit


def format_value(value: Interval | None, form: NumberFormat, *, null: float | None = None) -> str:
    """Return a value without its interval, with no more digits than the interval supports.

    Args:
        value: the value.
        form: its format.
        null: the value that means no difference; where the interval leaves it out, the value is not written so.
    """
    if value is None:
        return ""
    decimals, centre = _supported(value, form, (value.centre,)), value.centre
    if null is not None and (is_above(value, null) or is_below(value, null)):
        decimals, (centre,) = _apart_from(null, (centre,), decimals)
    return form.exactly(centre, decimals)


def ratio_text(value: Interval | None, *, x: bool = False, interval: bool = True) -> str:
    """Return a ratio of trials, machines or lanes, as all tables, answers and commands write it: `2.83 [2.26, 3.54]`.

    Args:
        value: the ratio; the text is empty without one.
        x: whether the number has its `x`, as in sentences: `2.83x [2.26, 3.54]`; tables have none.
        interval: whether the interval is written.
    """
    if value is None:
        return ""
    write = format_interval if interval else format_value
    number, bracket, ends = write(value, RATIO, null=1.0).partition(" [")
    return f"{number}x{bracket}{ends}" if x else f"{number}{bracket}{ends}"


def change_text(value: Interval | None, form: NumberFormat, *, is_ratio: bool) -> str:
    """Return a change with its interval: a ratio, or a difference with its sign, in the format of what changes."""
    if is_ratio:
        return ratio_text(value)
    return format_interval(value, with_sign(form), null=0.0)


def _supported(value: Interval, form: NumberFormat, numbers: Sequence[float]) -> int:
    """Return the usual decimals of some numbers, but no more than the interval of a value supports.

    An interval supports decimals to the second digit of its half-width, and to the first digit of the value.
    """
    usual = max(form.usual(number) for number in numbers)
    low, high = value.ends
    if not 0 < high - low < math.inf:
        return usual
    supported = 1 - math.floor(math.log10((high - low) / 2))
    if value.centre:
        supported = max(supported, -math.floor(math.log10(abs(value.centre))))
    return min(usual, supported)


def _apart_from(null: float, numbers: Sequence[float], decimals: int) -> tuple[int, list[float]]:
    """Return the decimals with which no number that differs from `null` is written as `null`, and the numbers.

    One that would need too many decimals is moved away from `null` by one in the last of them.
    """

    def is_misread(number: float) -> bool:
        is_apart = number != null and math.isfinite(number)
        return is_apart and round(number, decimals) == round(null, decimals)

    while decimals < _MOST_DECIMALS and any(is_misread(number) for number in numbers):
        decimals += 1
    moved = list(numbers)
    for index, number in enumerate(numbers):
        if is_misread(number):
            moved[index] = null + math.copysign(10.0**-decimals, number - null)
    return decimals, moved


RATE = NumberFormat(((100, 0), (0, 1)))
"""Images a second."""

SECONDS = NumberFormat(((100, 0), (10, 1), (0, 3)))
"""Seconds or milliseconds, to about three digits."""

RATIO = NumberFormat(((1000, 0), (100, 1), (0, 2)))
"""A factor, as a speed-up."""

MEMORY = NumberFormat(((100, 0), (10, 1), (0.1, 2), (0, 3)))
"""MiB, to about three digits."""

INTEGER = NumberFormat(((0, 0),))
"""Bytes, and the resident set in MiB."""

ACCURACY = NumberFormat(((0, 3),))
"""A fraction from 0 to 1."""

POINTS = NumberFormat(((0, 1),), signed=True)
"""Hundredths of an accuracy."""

GENERIC = NumberFormat(())
"""Any other number, to four digits."""


def with_sign(form: NumberFormat) -> NumberFormat:
    """Return the same format with a sign before positive numbers, too."""
    return replace(form, signed=True)
