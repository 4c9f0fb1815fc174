"""Values as texts: what a text of a command line means, how a value is typed after a flag; durations and shares.

>>> seconds_of("20m"), seconds_of("90"), share_of("5%"), share_of("0.05")
(1200.0, 90.0, 0.05, 0.05)
"""

from __future__ import annotations

import json
import re
from typing import Any

_WORDS = {"true": True, "false": False, "none": None}
_NUMBER = re.compile(
    r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE
)
"""A number without zeros before it: 007 is a name."""


def as_flag_value(value: Any) -> str:
    """A value as it is typed after a flag: true, none, 64,32 for a tuple, and JSON for a tuple of tuples."""
    if isinstance(value, bool | None):
        return str(value).lower()
    if not isinstance(value, list | tuple):
        return str(value)
    has_lists = any(isinstance(part, list | tuple) for part in value)
    if has_lists or not value:
        return json.dumps(value)
    return ",".join(map(as_flag_value, value))


def guess_value(text: str) -> Any:
    """What a text means where nothing says its type."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


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
