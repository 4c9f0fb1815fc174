"""How configurations, and what they have in common, are named in sentences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dmls_ray.analysis.table.row import Row
from dmls_ray.config.grid import BASELINE
from dmls_ray.records.names import OF_A_FIELD, distinct_names


def describe_configuration(factors: Mapping[str, Any]) -> str:
    """A configuration by the fields that vary: `world_size=2 batch_per_rank=16`; its batch once."""
    kept = without_derived_batch(factors).items()
    texts = (f"{name}={value:.10g}" if isinstance(value, float) else f"{name}={value}" for name, value in kept)
    return " ".join(texts) or "the one configuration"


def describe_changes(row: Row, changed: Collection[str]) -> str:
    """What a trial changes of the fields that were changed one at a time: `dropout=0.3`; empty where nothing."""
    specs = row.workload.specs()
    made = {name: value for name, value in row.factors.items() if name in changed and value != specs[name].default}
    return " ".join(f"{name}={value}" for name, value in made.items())


def name_of_change(row: Row, changed: Collection[str]) -> str:
    """The name of a trial by what it changes: `dropout=0.3`; `baseline` where nothing."""
    return describe_changes(row, changed) or BASELINE


def without_derived_batch(factors: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are known, and of the two batches one: the other follows."""
    kept = {name: value for name, value in factors.items() if value is not None}
    if "batch_per_rank" in kept:
        kept.pop("global_batch", None)
    return kept


def context_phrase(group: Sequence[Row], *axes: str) -> str:
    """The varied factors but the axes, as far as they are equal in the group: `at batch_per_rank 32, `."""
    same: dict[str, Any] = {
        name: value
        for name, value in group[0].factors.items()
        if name not in axes and all(row.factors[name] == value for row in group)
    }
    backends = {row.factors["backend"] for row in group if row.factors.get("backend")}
    if "backend" not in same and len(backends) == 1 and "backend" not in axes:
        same["backend"] = backends.pop()  # one rank has none
    text = ", ".join(f"{name} {value}" for name, value in without_derived_batch(same).items())
    return f"at {text}, " if text else ""


def paired_note(blocks: int, row: Row, base: Row, where_they_ran: str = "") -> str:
    """How many blocks a comparison of two trials is of, where it is not of all."""
    if blocks == max(len(row.counted), len(base.counted)):
        return ""
    return f" in {f'the {blocks} blocks that have' if blocks > 1 else 'the one block that has'} both{where_they_ran}"


def count_repeats(rows: Sequence[Row]) -> str:
    """`n=3`, or `n=2 to 3`: how many blocks the trials have a speed of."""
    counts = sorted({len(row.rates()) for row in rows})
    return f"n={counts[0]}" if len(counts) == 1 else f"n={counts[0]} to {counts[-1]}"


def factor_cells(factors: Mapping[str, Any], *, other_headers: Collection[str]) -> dict[str, str]:
    """Fields of a configuration as the cells of a row.

    Args:
        factors: name -> value.
        other_headers: headers of the row's other cells; a field with the name of one gets the prefix `config_`.
    """
    heads = distinct_names(factors, other_headers, OF_A_FIELD)
    return {head: "" if factors[name] is None else str(factors[name]) for name, head in heads.items()}


def as_sentence(text: str) -> str:
    """With a capital and a full stop; a name that stands first, as `accum_steps`, stays as it is written."""
    is_word = text.partition(" ")[0] in _FIRST_WORDS
    return f"{text[:1].upper() if is_word else text[:1]}{text[1:]}."


_FIRST_WORDS = {"at", "every", "in", "no", "on"}
"""Words that begin a headline and are no names."""


def join_names(names: Sequence[str], most: int = 4, separator: str = "; ") -> str:
    """Names one after the other; of many the first, and how many more there are."""
    shown = separator.join(names[:most])
    return shown if len(names) <= most else f"{shown}; and {len(names) - most} more"


def count_noun(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
