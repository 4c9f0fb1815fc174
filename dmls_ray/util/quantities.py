"""Durations and shares as people type and read them.

>>> seconds_of("20m"), seconds_of("90"), share_of("5%"), share_of("0.05")
(1200.0, 90.0, 0.05, 0.05)
"""

from __future__ import annotations

import re

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """The seconds of `90`, `90s`, `20m` or `2h`.

    Raises:
        ValueError: the text is no duration; its message names the way out.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in _SECONDS:
        raise ValueError("give a duration: 90s, 20m or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def share_of(text: str) -> float:
    """The share of `0.05` or `5%`.

    Raises:
        ValueError: the text is no share; its message names the way out.
    """
    found = re.fullmatch(r"\s*([-+]?\d*\.?\d+(?:e[-+]?\d+)?)\s*(%?)\s*", text.lower())
    if found is None:
        raise ValueError("give a share: 0.05 or 5%")
    return float(found[1]) / (100 if found[2] else 1)


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    rounded = round(seconds)
    if rounded < 120:
        return f"{rounded} s"
    if rounded < 7200:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded / 3600:.1f} h"
