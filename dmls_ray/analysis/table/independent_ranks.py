"""Sentences on trials whose ranks did not train one model together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.analysis.words import join_names

_NUMBER = re.compile(r"\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[+-]?\d+)?")


def describe_independent_ranks(rows: Sequence[Row]) -> list[str]:
    """A sentence for each cause, with the trials that it concerns.

    Causes that differ in their numbers alone are one, with the range of each number.
    """
    found: dict[tuple[str, ...], tuple[list[str], list[list[str]]]] = {}
    for row in rows:
        name = describe_configuration({"world_size": row.world_size, **row.factors})
        for text in (text for record in row.counted for text in record.independent_ranks.split("; ") if text):
            names, numbers = found.setdefault(tuple(_NUMBER.split(text)), ([], []))
            numbers.append(_NUMBER.findall(text))
            if name not in names:
                names.append(name)
    return [
        f"The ranks of {join_names(names)} did not train one model together: {_with_ranges(texts, numbers)}."
        for texts, (names, numbers) in found.items()
    ]


def _with_ranges(texts: Sequence[str], numbers: Sequence[Sequence[str]]) -> str:
    """The texts with the range of a number between each two of them."""
    ranges = map(_range, zip(*numbers, strict=True))
    return texts[0] + "".join(f"{range_}{text}" for range_, text in zip(ranges, texts[1:], strict=True))


def _range(numbers: Sequence[str]) -> str:
    ordered = sorted(numbers, key=lambda number: float(number.replace(",", "")))
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))
