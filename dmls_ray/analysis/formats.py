"""How numbers are written in tables and answers."""

from __future__ import annotations

from collections.abc import Callable

from dmls_ray.analysis.stats import Estimate


def shown(value: Estimate | None, write: Callable[[float], str]) -> str:
    """A median with its interval; the bare median where there is none; nothing where there is no value."""
    if value is None:
        return ""
    if value.low is None or value.high is None:
        return write(value.median)
    return f"{write(value.median)} [{write(value.low)}, {write(value.high)}]"


def bare(value: Estimate | None, write: Callable[[float], str]) -> str:
    """A median alone."""
    return "" if value is None else write(value.median)


def rate(value: float) -> str:
    """Images a second."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def seconds(value: float) -> str:
    """Seconds, to about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def ratio(value: float) -> str:
    """How many times as much."""
    return f"{value:.2f}"


def mib(value: float) -> str:
    """Memory in MiB."""
    return f"{value:,.0f}"


def accuracy(value: float) -> str:
    """A fraction from 0 to 1."""
    return f"{value:.3f}"


def number(value: float) -> str:
    """A number of which nothing is known, to four digits."""
    return f"{value:,.0f}" if abs(value) >= 1e4 or value.is_integer() else f"{value:#.4g}"
