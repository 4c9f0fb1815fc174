"""How numbers are written in tables and answers: with the digits that their interval supports."""

from __future__ import annotations

import math
from typing import Protocol

from dmls_ray.analysis.stats import Estimate, Interval


class Form(Protocol):
    """Writes a number with so many decimals, below 0 for whole tens and hundreds; without any, with its usual ones."""

    def __call__(self, value: float, most: int | None = None) -> str: ...


def shown(value: Estimate | Interval | None, form: Form) -> str:
    """A value with its interval; the bare value where there is none; nothing where there is no value."""
    if value is None:
        return ""
    if value.low is None or value.high is None:
        return form(value.centre)
    most = supported(value)
    return f"{form(value.centre, most)} [{form(value.low, most)}, {form(value.high, most)}]"


def bare(value: Estimate | Interval | None, form: Form) -> str:
    """A value alone, with no more digits than its interval supports."""
    return "" if value is None else form(value.centre, supported(value))


def supported(value: Estimate | Interval) -> int | None:
    """Decimals down to the second digit of half the interval; None where there is no interval, or none to speak of."""
    if value.low is None or value.high is None or not 0 < value.high - value.low < math.inf:
        return None
    return 1 - math.floor(math.log10((value.high - value.low) / 2))


def rate(value: float, most: int | None = None) -> str:
    """Images a second."""
    return _written(value, 0 if value >= 100 else 1, most)


def seconds(value: float, most: int | None = None) -> str:
    """Seconds or milliseconds, to about three digits."""
    return _written(value, 0 if value >= 100 else 1 if value >= 10 else 3, most)


def ratio(value: float, most: int | None = None) -> str:
    """How many times as much."""
    return _written(value, 2, most)


def whole(value: float, most: int | None = None) -> str:
    """Memory in MiB, bytes: no part of one is of interest."""
    return _written(value, 0, most)


def accuracy(value: float, most: int | None = None) -> str:
    """A fraction from 0 to 1."""
    return _written(value, 3, most)


def number(value: float, most: int | None = None) -> str:
    """A number of which nothing is known, to four digits."""
    if abs(value) >= 1e4 or (value.is_integer() and (most is None or most <= 0)):
        return _written(value, 0, most)
    if value and abs(value) < 1e-4:
        return f"{value:.3e}"
    return _written(value, 3 - math.floor(math.log10(abs(value))) if value else 0, most)


def signed(form: Form) -> Form:
    """The same with a sign before what is more than nothing, too."""

    def write(value: float, most: int | None = None) -> str:
        text = form(value, most)
        return text if text.startswith("-") else f"+{text}"

    return write


def _written(value: float, usual: int, most: int | None) -> str:
    if math.isinf(value):
        return "inf"
    decimals = usual if most is None else min(usual, most)
    rounded = round(value, decimals) + 0.0  # no -0
    return f"{rounded:,.{max(decimals, 0)}f}"
