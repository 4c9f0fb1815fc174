"""Text from errors and from untrusted records, made safe and short enough for one line of a terminal."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from dmls_ray.util.errors import ConfigError

_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # all control characters but the tab and the end of a line
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns around what follows, so that a line reads as another
    "\u2028\u2029"  # other ends of a line
    "\ud800-\udfff]"  # halves of a character, which no encoding has
)


def escape_control_chars(text: str) -> str:
    """The text with control characters, and those that turn its direction, written out: `\\x1b` for an escape."""
    return _COMMANDS.sub(lambda mark: mark[0].encode("unicode_escape").decode(), text)


def first_line(error: BaseException, *, empty: str | None = None) -> str:
    """First line of an error's message; `empty`, or the name of the error's class, where it has no message."""
    lines = str(error).strip().splitlines()
    if lines:
        return lines[0]
    return type(error).__name__ if empty is None else empty


def utf8_safe(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot hold, written out."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def check_utf8(word: str) -> None:
    """Refuse a text that is not UTF-8, such as the name of a file.

    Raises:
        ConfigError: it has bytes that are no characters.
    """
    if utf8_safe(word) != word:
        raise ConfigError(f"{word!a} is not UTF-8; give another name.")


def did_you_mean(unknown: str, names: Sequence[str]) -> str:
    """`did you mean --batch-per-rank? `, with a space at its end; empty where no name is similar.

    Names that begin with what was written come before those that are merely similar, in the order of `names`; at most
    three are named.
    """
    meant = [name for name in names if name.startswith(unknown)][:3] or difflib.get_close_matches(unknown, names, n=1)
    return f"did you mean {' or '.join(meant)}? " if meant else ""
