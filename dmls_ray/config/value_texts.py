"""Values as texts: what a text of a command line means, and how a value is typed after a flag."""

from __future__ import annotations

import re
from typing import Any

TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
"""Texts of a field that is true or false."""

BRACKETS = ("[", "(")
"""What may open a list of values."""

_WORDS = {"true": True, "false": False, "none": None}
_QUOTES = ("'", '"')
_NUMBER = re.compile(
    r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE
)
"""A number without zeros before it: 007 is a name."""


def as_flag_value(value: Any) -> str:
    """A value as it is typed after a flag: true, none, or 64,32 for a tuple."""
    if not isinstance(value, list | tuple):
        return str(value).lower() if isinstance(value, bool | None) else str(value)
    text = ",".join(_with_brackets(part) for part in value)
    has_lists = any(isinstance(part, list | tuple) for part in value)
    return f"[{text}]" if has_lists or not text else text


def guess_value(text: str) -> Any:
    """What a text means where nothing says its type; in quotation marks it is a text whatever it looks like."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _is_quoted(text):
        return text[1:-1]
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def parts_of(text: str) -> list[str] | None:
    """The parts between the commas of a text; commas within brackets separate none. None: brackets are not closed."""
    text = text.strip()
    if text[:1] in BRACKETS and _closing_bracket(text) == len(text) - 1:
        text = text[1:-1]
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        return None
    if not parts[-1].strip():  # of an empty text, or as in (1,)
        parts.pop()
    parts = [part.strip() for part in parts]
    return [part[1:-1] if _is_quoted(part) else part for part in parts]


def _with_brackets(part: Any) -> str:
    text = as_flag_value(part)
    is_list = isinstance(part, list | tuple) and not text.startswith("[")
    return f"[{text}]" if is_list else text


def _closing_bracket(text: str) -> int:
    """The position of the bracket that closes the first one; -1 without."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "[(") - (letter in ")]")
        if depth == 0:
            return place
    return -1


def _is_quoted(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] and text[0] in _QUOTES
