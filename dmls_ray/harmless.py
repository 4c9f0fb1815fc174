"""Text of a record, which may come from anybody, as a terminal shows it: nothing in it is a command to the terminal."""

from __future__ import annotations

import unicodedata

_TURNS = ("\u061c", "\u200e", "\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)))
"""Characters that change the order in which others are shown, so that a line reads as another than it is."""

_KEPT = "\n\t"


def harmless(text: str) -> str:
    """The text with control characters, and those that turn its direction, written out: `\\x1b` for an escape."""
    if text.isprintable():
        return text
    return "".join(mark if _is_harmless(mark) else mark.encode("unicode_escape").decode() for mark in text)


def _is_harmless(mark: str) -> bool:
    return mark in _KEPT or (mark not in _TURNS and unicodedata.category(mark) not in ("Cc", "Cs", "Zl", "Zp"))
