"""The files derived from `runs.jsonl`: the report, the table with its answer, CSV and Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_ray.analysis.export.text_tables import answer_markdown, csv, table_markdown
from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.report.render import render_report
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary import summarize
from dmls_ray.analysis.table.named_layouts import shown_columns
from dmls_ray.storage.runs_file import RUNS
from dmls_ray.util.errors import StoreError
from dmls_ray.util.files import atomic_replace

if TYPE_CHECKING:
    import pandas as pd

DERIVED_FILES = ("report.html", "table.md", "table.csv", "runs.csv", "ranks.csv", "epochs.csv", "runs.parquet")


def derived_files_are_current(folder: Path) -> bool:
    """Whether all derived files exist and are newer than the last run. A power failure may have left empty ones."""
    source = folder / RUNS
    if not source.exists():
        return True
    for name in DERIVED_FILES:
        path = folder / name
        if not path.is_file() or not path.stat().st_size or path.stat().st_mtime < source.stat().st_mtime:
            return False
    return True


def write_derived_files(results: Results) -> None:
    """Write the derived files of a folder from all of its runs.

    Raises:
        StoreError: some of them cannot be written, or sweep.json cannot be read; the others are written.
    """
    if not results.records:
        return
    reading = summarize(results)
    table = reading.table
    text = f"{table_markdown(table, shown_columns(table).columns)}\n{answer_markdown(reading.answer)}\n"
    texts: dict[str, Callable[[], str]] = {
        "runs.csv": lambda: csv(results.runs),
        "ranks.csv": lambda: csv(results.ranks),
        "epochs.csv": lambda: csv(results.epochs),
        "table.md": lambda: text,
        "table.csv": lambda: csv(table.numbers()),
        "report.html": lambda: render_report(reading, charts(table)),
    }
    failed: dict[str, OSError] = {}
    for name in DERIVED_FILES:
        try:
            with atomic_replace(results.folder / name) as aside:
                if name in texts:
                    aside.write_text(texts[name](), encoding="utf-8")
                else:
                    with_uniform_columns(results.runs).to_parquet(aside, index=False)
        except OSError as error:
            failed[name] = error
    if failed:
        first = next(iter(failed.values()))
        raise StoreError(
            f"{', '.join(failed)} of {results.where} cannot be written ({first.strerror or first}); free some "
            "space there, or read a copy of the folder."
        )


def with_uniform_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame for Parquet: a column of several types, or of lists, as text."""
    import pandas as pd

    frame = frame.copy(deep=False)
    for head, dtype in frame.dtypes.items():
        kinds = {type(value) for value in frame[head] if value is not None}
        if pd.api.types.is_object_dtype(dtype) and kinds not in ({str}, {bool}, set()):
            frame[head] = [None if value is None else str(value) for value in frame[head]]
    return frame
