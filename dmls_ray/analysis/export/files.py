"""The files derived from `runs.jsonl`: the report, the table with its answer, CSV and Parquet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from dmls_ray.analysis.export.text_tables import answer_markdown, csv, table_markdown
from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.report.render import write_report
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary import summarize
from dmls_ray.analysis.table.shown import shown_columns
from dmls_ray.storage.runs_file import RUNS
from dmls_ray.util.atomic import atomic_replace
from dmls_ray.util.errors import StoreError

DERIVED_FILES = ("report.html", "table.md", "table.csv", "runs.csv", "ranks.csv", "epochs.csv", "runs.parquet")


def derived_files_are_current(folder: Path) -> bool:
    """Whether all derived files exist and are newer than the last run. A power failure may have left empty ones."""
    source = folder / RUNS
    return not source.exists() or all(
        (path := folder / name).is_file() and path.stat().st_size and path.stat().st_mtime >= source.stat().st_mtime
        for name in DERIVED_FILES
    )


def write_derived_files(results: Results) -> None:
    """Write the derived files of a folder from all of its runs.

    Raises:
        StoreError: some of them cannot be written, or sweep.json cannot be read; the others are written.
    """
    if not results.records:
        return
    failed: dict[str, OSError] = {}

    def write(name: str, how: Callable[[Path], object]) -> None:
        try:
            with atomic_replace(results.folder / name) as aside:
                how(aside)
        except OSError as error:
            failed[name] = error

    for name, frame in (("runs", results.runs), ("ranks", results.ranks), ("epochs", results.epochs)):
        write(f"{name}.csv", partial(_write_csv, frame))
    write("runs.parquet", partial(with_uniform_columns(results.runs).to_parquet, index=False))
    reading = summarize(results)
    text = f"{table_markdown(reading.table, shown_columns(reading.table).columns)}\n{answer_markdown(reading.answer)}\n"
    write("table.md", lambda path: path.write_text(text, encoding="utf-8"))
    write("table.csv", partial(_write_csv, reading.table.numbers()))
    write("report.html", partial(write_report, reading, charts(reading.table)))
    if failed:
        first = next(iter(failed.values()))
        raise StoreError(
            f"{', '.join(failed)} of {results.where} cannot be written ({first.strerror or first}); free some "
            "space there, or read a copy of the folder."
        )


def _write_csv(frame: pd.DataFrame, path: Path) -> None:
    path.write_text(csv(frame), encoding="utf-8")


def with_uniform_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame for Parquet: a column of several types, or of lists, as text."""
    frame = frame.copy(deep=False)
    for head in [head for head, kind in frame.dtypes.items() if pd.api.types.is_object_dtype(kind)]:
        if {type(value) for value in frame[head] if value is not None} not in ({str}, {bool}, set()):
            frame[head] = [None if value is None else str(value) for value in frame[head]]
    return frame
