"""Records as pandas tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dmls_ray.config import DEFAULTS
from dmls_ray.record import EpochRecord, RankRecord, RunRecord
from dmls_ray.store import latest_records

NESTED = ("config", "machine", "versions", "git", "epochs", "ranks", "earlier_attempts")
KEYS = ("run_id", "trial_id", "repeat")


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
        for name, default in DEFAULTS.items():
            columns[name] = [record.config.get(name, default) for record in records]
        columns["global_batch"] = [factors_of(record)["global_batch"] for record in records]
        # What a field became (auto, a warm-up longer than half the run) stands beside what was asked for.
        for name in ("device", "backend", "warmup_steps"):
            columns[f"resolved_{name}"] = [getattr(record, name) for record in records]
        for name in (item.name for item in fields(RunRecord)):
            if name not in (*NESTED, "seed") and name not in columns:
                columns[name] = [getattr(record, name) for record in records]
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
        columns = [item.name for item in fields(EpochRecord)]
        rows = [
            {name: getattr(record, name) for name in KEYS} | {name: getattr(epoch, name) for name in columns}
            for record in self.records
            for epoch in record.epochs
        ]
        return pd.DataFrame(rows, columns=[*KEYS, *columns])

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
    """Every field of the run's configuration, global_batch included."""
    factors = {name: record.config.get(name, default) for name, default in DEFAULTS.items()}
    if factors["batch_per_rank"] is not None:
        factors["global_batch"] = factors["batch_per_rank"] * factors["world_size"] * factors["accum_steps"]
    return factors
