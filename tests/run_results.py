"""Results of ranks from plain values by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_ray.records.model import EpochRecord
from dmls_ray.records.returned import part_of
from dmls_ray.records.run_events import RankResult, RunResult


def run_of(values: Mapping[str, Any]) -> RunResult:
    """What ranks measured together: fields by their name, epochs as dicts, numbers as metrics, and other facts."""
    run = RunResult()
    for name, value in values.items():
        if name == "epochs":
            run.epochs = [part_of(epoch, EpochRecord, "an epoch") for epoch in value]
        elif name in RunResult.__struct_fields__:
            setattr(run, name, value)
        else:
            run.add({name: value})
    return run


def returning(value: Any) -> RankResult:
    """What an entry point of a test gives back that returns a value: `run.reported["returned"]`."""
    return RankResult(run=RunResult(reported={"returned": value}))
