"""Texts and numbers as plotly and JSON accept them."""

from __future__ import annotations

import math
from typing import Any


def plain(text: str) -> str:
    """Text that plotly shows literally; it would interpret tags, links and templates in any label."""
    for mark, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("{", "&#123;"), ("$", "&#36;")):
        text = text.replace(mark, entity)
    return text


def rounded(value: Any, digits: int = 5) -> Any:
    """A float to so many digits, or None if it is not finite; any other value unchanged."""
    if type(value) is not float:
        return value
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.{digits}g}")
