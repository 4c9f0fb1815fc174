"""The files made from `runs.jsonl`: runs.csv, ranks.csv, epochs.csv, runs.parquet, and table.md with the answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dmls_ray.analysis.answer import answer, answer_search, answer_variants
from dmls_ray.analysis.frames import Results
from dmls_ray.analysis.tables import make_table
from dmls_ray.store import RUNS, read_sweep, write_whole

DERIVED = ("runs.csv", "ranks.csv", "epochs.csv", "runs.parquet", "table.md")


def are_written(folder: Path) -> bool:
    """Whether the derived files are there, and made since the last run was added."""
    source = folder / RUNS
    return not source.exists() or all(
        (path := folder / name).exists() and path.stat().st_mtime >= source.stat().st_mtime for name in DERIVED
    )


def write_files(results: Results) -> None:
    """Make the derived files of a folder anew, from all of its runs."""
    if not results.records:
        return
    for name, frame in (("runs", results.runs), ("ranks", results.ranks), ("epochs", results.epochs)):
        _aside(results.folder / f"{name}.csv", partial(frame.to_csv, index=False))
    _aside(results.folder / "runs.parquet", partial(_of_one_type(results.runs).to_parquet, index=False))
    sessions = read_sweep(results.folder).get("sessions", [])
    varied, axis = _asked(sessions)
    last = sessions[-1] if sessions else {}
    searched = last.get("mode") == "search"
    table = make_table(results, varied, best_by=(last["metric"], last["minimizes"]) if searched else None)
    if searched:
        sentence = answer_search(table, last["metric"], minimizes=last["minimizes"])
    else:
        sentence = answer_variants(table, last["changed"]) if last.get("changed") else answer(table, axis)
    write_whole(results.folder / "table.md", f"{table.markdown()}\n{sentence}\n")


def _of_one_type(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame as Parquet can hold it: a column of several types, or of lists, as texts."""
    frame = frame.copy(deep=False)
    for head in [head for head, kind in frame.dtypes.items() if pd.api.types.is_object_dtype(kind)]:
        if {type(value) for value in frame[head] if value is not None} not in ({str}, {bool}, set()):
            frame[head] = [None if value is None else str(value) for value in frame[head]]
    return frame


def _asked(sessions: list[dict[str, Any]]) -> tuple[tuple[str, ...], str]:
    """The fields that were varied by any call, and the one that the last call asked about."""
    values: dict[str, set[str]] = {}
    for session in sessions:
        for name, given in session.get("axes", {}).items():
            values.setdefault(name, set()).update(map(repr, given))
    varied = tuple(name for name, given in values.items() if len(given) > 1)
    axis = sessions[-1].get("axis") if sessions else None
    return varied, axis or next(iter(varied), "batch_per_rank")


def _aside(path: Path, write: Callable[[Path], object]) -> None:
    aside = path.with_name(f".{path.name}.new")
    write(aside)
    os.replace(aside, path)
