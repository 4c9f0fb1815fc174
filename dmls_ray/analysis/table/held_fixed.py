"""The line below a table that says what was equal in all of its trials."""

from __future__ import annotations

from dataclasses import fields

from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.groups import BATCHES
from dmls_ray.config.runtime import RuntimeConfig

_NEVER = {"seed", "data_dir"}
"""Fields that differ from run to run, or say where something is."""


def held_fixed(table: Table) -> str:
    """`Held fixed: model digits_convnet, dataset digits, epochs 5`; empty where nothing was.

    Named are the fields that the workload always names, and those that are not at their default.
    """
    configs = [row.records[0].config for row in table.rows if row.records]
    if not configs:
        return ""
    workload = table.presentation.workload
    specs = workload.specs()
    # Without a list, a function's own fields: those that not every workload has.
    shared = {item.name for item in fields(RuntimeConfig)}
    named = table.presentation.always_named or tuple(name for name in configs[0] if name not in shared)
    varied = {*table.varied, *_NEVER, *(BATCHES if {*table.varied} & BATCHES else ())} - table.constant
    others = [name for name, value in configs[0].items() if name in specs and value != specs[name].default]
    parts = []
    for name in dict.fromkeys([*named, *others]):
        value = configs[0].get(name)
        if name not in varied and value is not None and all(config.get(name) == value for config in configs):
            parts.append(f"{name} {value}")
    return f"Held fixed: {', '.join(parts)}." if parts else ""
