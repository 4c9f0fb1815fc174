"""Names of columns: what has a name of its own, and what a field or a metric with the same name is called instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable

KEYS = ("run_id", "trial_id", "repeat")
RESERVED = (*KEYS, "outcome", "reason", "run_seed")
"""Columns that say which run a row is of, and how it ended: no field of a configuration takes their place."""

OF_A_FIELD, OF_A_RECORD, OF_A_METRIC = "config_", "resolved_", "measured_"
"""Prefixes of a name that is taken: of a field of a configuration, of what is recorded of every run, and of a metric of
a training function."""


def distinct_names(names: Iterable[str], taken: Collection[str], prefix: str) -> dict[str, str]:
    """Name -> its column. A name that is taken gets the prefix, again until no other column has it; others stay."""
    columns = {name: name for name in names}
    used = {*taken, *columns}
    for name in [name for name in columns if name in taken]:
        column = prefix + name
        while column in used:
            column = prefix + column
        used.add(column)
        columns[name] = column
    return columns
