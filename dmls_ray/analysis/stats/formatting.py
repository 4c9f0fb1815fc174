"""How numbers are written in tables and answers: with the digits that their interval supports."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dmls_ray.analysis.stats.intervals import Estimate, Interval

_MOST_DECIMALS = 6
"""A number that needs more decimals is written with an exponent."""


@dataclass(frozen=True)
class NumberFormat:
    """How a kind of number is written."""

    usual: Callable[[float], int]
    """Number of decimals without an interval, and the largest number with one."""
    signed: bool = False
    """Whether positive numbers have a sign, too."""

    def __call__(self, value: float, most: int | None = None) -> str:
        """Return the number with its usual decimals, but at most `most`; negative for whole tens and hundreds."""
        usual = self.usual(value)
        return self.exactly(value, usual if most is None else min(usual, most))

    def exactly(self, value: float, decimals: int) -> str:
        """Return the number with exactly `decimals` decimals."""
        if not math.isfinite(value):
            return str(value)
        if decimals > _MOST_DECIMALS:
            text = f"{value:.{max(decimals + math.floor(math.log10(abs(value))), 0)}e}" if value else "0"
            return f"+{text}" if self.signed and value >= 0 else text
        text = f"{round(value, decimals) + 0.0:,.{max(decimals, 0)}f}"  # no -0
        return text if not self.signed or text.startswith("-") else f"+{text}"


def format_interval(value: Estimate | Interval | None, form: NumberFormat, *, null: float | None = None) -> str:
    """Return a value with its interval; the value alone without an interval; empty without a value.

    Args:
        value: the value.
        form: its format.
        null: the value that means no difference. An end that differs from it is written so, however little it does:
            the interval that is read contains it if and only if the interval does.
    """
    if value is None:
        return ""
    if value.low is None or value.high is None:
        return form(value.centre)
    numbers = (value.centre, value.low, value.high)
    decimals = _supported(value, form, numbers)
    if null is not None:
        decimals, (low, high) = _apart_from(null, numbers[1:], decimals)
        numbers = (value.centre, low, high)
    centre, low_text, high_text = (form.exactly(number, decimals) for number in numbers)
    return f"{centre} [{low_text}, {high_text}]"


def format_value(value: Estimate | Interval | None, form: NumberFormat, *, null: float | None = None) -> str:
    """Return a value without its interval, with no more digits than the interval supports.

    Args:
        value: the value.
        form: its format.
        null: the value that means no difference; where the interval leaves it out, the value is not written so.
    """
    if value is None:
        return ""
    decimals, centre = _supported(value, form, (value.centre,)), value.centre
    if null is not None and value.low is not None and value.high is not None and not value.low <= null <= value.high:
        decimals, (centre,) = _apart_from(null, (centre,), decimals)
    return form.exactly(centre, decimals)


def _supported(value: Estimate | Interval, form: NumberFormat, numbers: Sequence[float]) -> int:
    """Return the usual decimals of some numbers, but no more than the interval of a value supports."""
    usual, most = max(map(form.usual, numbers)), supported_decimals(value)
    return usual if most is None else min(usual, most)


def _apart_from(null: float, numbers: Sequence[float], decimals: int) -> tuple[int, list[float]]:
    """Return the decimals with which no number that differs from `null` is written as `null`, and the numbers.

    One that would need too many decimals is moved away from `null` by one in the last of them.
    """
    apart = [number for number in numbers if number != null and math.isfinite(number)]
    while decimals < _MOST_DECIMALS and any(_is_written_as(null, number, decimals) for number in apart):
        decimals += 1
    step = 10.0**-decimals
    moved = [
        null + math.copysign(step, number - null)
        if number in apart and _is_written_as(null, number, decimals)
        else number
        for number in numbers
    ]
    return decimals, moved


def _is_written_as(null: float, number: float, decimals: int) -> bool:
    return round(number, decimals) == round(null, decimals)


def supported_decimals(value: Estimate | Interval) -> int | None:
    """Return the decimals that an interval supports: to the second digit of its half-width, and the first of the value.

    None without an interval, or with one of width 0 or infinity.
    """
    if value.low is None or value.high is None or not 0 < value.high - value.low < math.inf:
        return None
    digits = 1 - math.floor(math.log10((value.high - value.low) / 2))
    return max(digits, -math.floor(math.log10(abs(value.centre)))) if value.centre else digits


def _four_digits(value: float) -> int:
    if abs(value) >= 1e4 or value.is_integer() or not math.isfinite(value):
        return 0
    return 3 - math.floor(math.log10(abs(value)))


RATE = NumberFormat(lambda value: 0 if abs(value) >= 100 else 1)
"""Images a second."""

SECONDS = NumberFormat(lambda value: 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3)
"""Seconds or milliseconds, to about three digits."""

RATIO = NumberFormat(lambda value: 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2)
"""A factor, as a speed-up."""

MEMORY = NumberFormat(
    lambda value: 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 3
)
"""MiB, to about three digits."""

INTEGER = NumberFormat(lambda value: 0)
"""Bytes, and the resident set in MiB."""

ACCURACY = NumberFormat(lambda value: 3)
"""A fraction from 0 to 1."""

GENERIC = NumberFormat(_four_digits)
"""Any other number, to four digits."""


def with_sign(form: NumberFormat) -> NumberFormat:
    """Return the same format with a sign before positive numbers, too."""
    return replace(form, signed=True)
