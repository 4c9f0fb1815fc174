"""Values as texts: what a text of a command line means, and how a value is typed after a flag."""

from __future__ import annotations

import json
import re
from typing import Any

_WORDS = {"true": True, "false": False, "none": None}
_NUMBER = re.compile(
    r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE
)
"""A number without zeros before it: 007 is a name."""
_PART = re.compile(r"""\s*('[^']*'|"[^"]*"|[^][(),\s][^][(),]*)|[()]""")
"""A word between commas and brackets, or a round bracket."""
_TRAILING_COMMA = re.compile(r",\s*(?=\]|$)")


def as_flag_value(value: Any) -> str:
    """A value as it is typed after a flag: true, none, or 64,32 for a tuple."""
    if isinstance(value, bool | None):
        return str(value).lower()
    if not isinstance(value, list | tuple):
        return str(value)
    text = ",".join(_bracketed(part) for part in value)
    has_lists = any(isinstance(part, list | tuple) for part in value)
    return f"[{text}]" if has_lists or not value else text


def guess_value(text: Any) -> Any:
    """What a text, or each text of a list, means where nothing says its type; in quotation marks it is a text."""
    if isinstance(text, list):
        return [guess_value(part) for part in text]
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not _NUMBER.fullmatch(text):
        return without_quotes(text)
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def parts_of(text: str) -> list[Any]:
    """The parts between the commas of a text; those in brackets are lists.

    Raises:
        ValueError: the brackets or commas do not match.
    """
    content = _TRAILING_COMMA.sub("", _PART.sub(_as_json, text))
    parts: list[Any] = json.loads(f"[{content}]")
    is_bracketed = len(parts) == 1 and isinstance(parts[0], list)
    return parts[0] if is_bracketed else parts


def without_quotes(text: str) -> str:
    """The text between quotation marks; a text without them as it is."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text


def _as_json(part: re.Match[str]) -> str:
    if part[1] is None:
        return {"(": "[", ")": "]"}[part[0]]
    return json.dumps(without_quotes(part[1].strip()))


def _bracketed(part: Any) -> str:
    if isinstance(part, list | tuple):
        return f"[{','.join(map(_bracketed, part))}]"
    return as_flag_value(part)
