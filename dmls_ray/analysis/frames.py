"""Records as pandas tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dmls_ray.config import DEFAULTS
from dmls_ray.record import EpochRecord, RankRecord, RunRecord
from dmls_ray.store import latest_records

NESTED = ("config", "machine", "versions", "git", "epochs", "ranks", "earlier_attempts", "measures", "proposed")
KEYS = ("run_id", "trial_id", "repeat")
OWN = "train"
"""The entry of a configuration that names a training function of the user's own."""


class Results:
    """A sweep's runs as pandas DataFrames.

    Attributes:
        folder: where they lie.
        records: one `RunRecord` a run.
    """

    def __init__(self, folder: str | os.PathLike[str], records: Sequence[RunRecord]) -> None:
        self.folder = Path(folder)
        self.records = sorted(records, key=lambda record: (record.repeat, record.order))

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        counts = self.runs["outcome"].value_counts().to_dict() if self.records else {}
        told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        return f"Results({str(self.folder)!r}, {len(self)} runs: {told or 'none'})"

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row a run: every field of the configuration, every column of the record, and the machine's name."""
        records = self.records
        # Column by column: a dict a run would take gigabytes for a hundred thousand.
        columns: dict[str, list[Any]] = {name: [getattr(record, name) for record in records] for name in KEYS}
        factors = [factors_of(record) for record in records]
        for name in field_names(factors):
            columns[name] = [item.get(name) for item in factors]
        for name in (item.name for item in fields(RunRecord)):
            if name not in (*NESTED, *KEYS, "seed"):
                # What a field became (auto, a warm-up longer than half the run) stands beside what was asked for.
                column = f"resolved_{name}" if name in columns else name
                columns[column] = [getattr(record, name) for record in records]
        for name in field_names([record.measures for record in records]):
            column = f"measured_{name}" if name in columns else name
            columns[column] = [record.measures.get(name) for record in records]
        columns["outcome"] = [record.outcome.value for record in records]
        columns["run_seed"] = [record.seed for record in records]
        for name, default in (("host", ""), ("cpu", ""), ("cores", None)):
            columns[name] = [record.machine.get(name, default) for record in records]
        columns["gpus"] = [", ".join(record.machine.get("gpus", [])) for record in records]
        for name in ("torch", "ray"):
            columns[name] = [record.versions.get(name, "") for record in records]
        columns["git_commit"] = [record.git.get("commit", "") for record in records]
        columns["git_dirty"] = [record.git.get("dirty") for record in records]
        frame = pd.DataFrame(columns)
        numbers = frame.select_dtypes("float").columns
        frame[numbers] = frame[numbers].where(np.isfinite(frame[numbers]))
        return frame

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """One row a rank of a run."""
        columns = [item.name for item in fields(RankRecord) if item.name != "epochs"]
        rows = [
            {name: getattr(record, name) for name in KEYS} | {name: getattr(rank, name) for name in columns}
            for record in self.records
            for rank in record.ranks
        ]
        return pd.DataFrame(rows, columns=[*KEYS, *columns])

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row an epoch of a run, over all its ranks."""
        columns = [item.name for item in fields(EpochRecord) if item.name != "measures"]
        own = field_names([epoch.measures for record in self.records for epoch in record.epochs])
        rows = [
            {name: getattr(record, name) for name in KEYS}
            | epoch.measures
            | {name: getattr(epoch, name) for name in columns}
            for record in self.records
            for epoch in record.epochs
        ]
        return pd.DataFrame(rows, columns=[*KEYS, *columns, *own])

    @cached_property
    def rank_epochs(self) -> pd.DataFrame:
        """One row an epoch of a rank, over that rank's own samples."""
        rows = [
            {name: getattr(record, name) for name in KEYS} | {"rank": rank.rank, **epoch}
            for record in self.records
            for rank in record.ranks
            for epoch in rank.epochs
        ]
        return pd.DataFrame(rows, columns=None if rows else [*KEYS, "rank", "epoch"])


def load(folder: str | os.PathLike[str]) -> Results:
    """The results in a folder.

    Raises:
        StoreError: the folder holds no sweep, or a line in it is no record.
    """
    return Results(folder, latest_records(folder))


def factors_of(record: RunRecord) -> dict[str, Any]:
    """Every field of the run's configuration, and what follows from them: global_batch."""
    if OWN in record.config:
        return record.config
    factors = {name: record.config.get(name, default) for name, default in DEFAULTS.items()}
    if factors["batch_per_rank"] is not None:
        factors["global_batch"] = factors["batch_per_rank"] * factors["world_size"] * factors["accum_steps"]
    return factors


def field_names(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names that any of them has, in their order."""
    names: dict[str, None] = {}
    for item in items:
        if not item.keys() <= names.keys():
            names |= dict.fromkeys(item)
    return list(names)
