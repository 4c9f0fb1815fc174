"""Numbers that a script prints: by patterns that are asked for, and in lines of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from dmls_ray.records.returned import is_number
from dmls_ray.workloads.script.told_numbers import ToldNumbers, is_counter

_MOST_LINE = 10_000
"""Characters from which on a line is none of JSON."""
_MOST_AFTER = 5
"""Lines of a script's end with its exception, at most."""
_END_BYTES = 16_000
"""Of a log, in which what a script said last stands."""


_AFTER_A_NUMBER = ",;:.)]}%"
"""What may follow a number in a sentence, and is matched with it by patterns of what is no space."""
_STYLE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""What a terminal takes for colours, and for the rest of a line that is to go."""


def numbers_printed(log: str, patterns: Mapping[str, str]) -> ToldNumbers:
    """The numbers that a script has printed: those of patterns, and of lines of JSON without counters.

    Args:
        log: path of the file of its output.
        patterns: name -> regular expression, whose first group, or all of it, is the number.
    """
    named = [(name, re.compile(pattern)) for name, pattern in patterns.items()]
    found = ToldNumbers()
    with open(log, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("{") and len(line) < _MOST_LINE:
                for name, number in _numbers_of(line).items():
                    if name not in patterns:
                        found.add(name, number)
            for name, pattern in named:
                for match in pattern.finditer(_STYLE.sub("", line)):
                    # A group that took no part in the match is an empty text.
                    text = match[1 if pattern.groups else 0] or ""
                    try:
                        found.add(name, float(text.rstrip(_AFTER_A_NUMBER)))
                    except ValueError:
                        found.add(name, text)
    return found


def _numbers_of(line: str) -> dict[str, float]:
    """The numbers of a JSON object by name, without counters; none in any other line."""
    try:
        values = json.loads(line)
    except ValueError:
        return {}
    return {name: value for name, value in values.items() if is_number(value) and not is_counter(name)}


def last_line_of(log: str) -> str:
    """The last line that a script has printed that is not empty."""
    return next((line.strip() for line in reversed(_end_of(log)) if line.strip()), "")


def last_exception_in(log: str) -> str:
    """The exception of a traceback that a script has printed at its end: `ValueError: text`; empty without one."""
    lines = [line for line in _end_of(log) if line.strip()]
    begins = [place for place, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if not begins:
        return ""
    # Between both lines, all are indented.
    following = [line.strip() for line in lines[begins[-1] + 1 :] if line[:1].strip()]
    # After an exception that it went on from, a script prints more.
    return following[0] if 0 < len(following) <= _MOST_AFTER else ""


def _end_of(log: str) -> list[str]:
    """The last lines that a script has printed."""
    with open(log, "rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _END_BYTES))
        return file.read().decode(errors="replace").splitlines()
