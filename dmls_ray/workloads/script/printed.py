"""Numbers that a script prints: by patterns that are asked for, and in lines of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

from dmls_ray.records.returned import is_number
from dmls_ray.workloads.script.told_numbers import ToldNumbers, is_counter

_MOST_LINE = 10_000
"""Characters from which on a line is none of JSON."""
_END_BYTES = 4000


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
                for name, number in _numbers_of(line, set(patterns)).items():
                    found.add(name, number)
            for name, pattern in named:
                for match in pattern.finditer(line):
                    found.add(name, _number_in(match[1] if pattern.groups else match[0]))
    return found


def _number_in(text: str | None) -> float | str:
    """The number that a text is; a group that took no part in the match is an empty one."""
    try:
        return float(text or "")
    except ValueError:
        return text or ""


def _numbers_of(line: str, patterns: Collection[str]) -> dict[str, float]:
    """The numbers of a JSON object by name, without those of patterns and counters; none in any other line."""
    try:
        values = json.loads(line)
    except ValueError:
        return {}
    numbers = {name: value for name, value in values.items() if is_number(value)}
    return {name: value for name, value in numbers.items() if name not in patterns and not is_counter(name)}


def last_line_of(log: str) -> str:
    """The last line that a script has printed that is not empty."""
    with open(log, "rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _END_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
