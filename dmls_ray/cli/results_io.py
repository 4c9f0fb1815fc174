"""What the commands share: where results are found, and how tables and files are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from dmls_ray.analysis.export.text_tables import csv, latex, latex_comment, markdown, markdown_text
from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.figures.static import save
from dmls_ray.analysis.results import Results, load
from dmls_ray.analysis.stats.formatting import GENERIC
from dmls_ray.analysis.summary.sweep_summary import summarize
from dmls_ray.cli.console import Console, print_table, say
from dmls_ray.cli.parser import Parser
from dmls_ray.records.model import RunRecord
from dmls_ray.storage.location import find_sweeps
from dmls_ray.storage.mirror import PENDING_DIR
from dmls_ray.storage.runs_file import RUNS
from dmls_ray.util.errors import ConfigError, InputError, StoreError
from dmls_ray.util.uri import below, check_location, is_uri

FORMATS = ("text", "markdown", "csv", "latex")


def add_folder(parser: Parser, name: str = "folder") -> None:
    parser.add_argument(name, metavar="DIR", help="Results folder of a sweep, results/batch_size, say, or its URI")


def add_format(parser: Parser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="text", help="How to write it (default: text)")


def local_folder(place: str | None, flag: str) -> Path | None:
    """A folder that files are drawn or written into.

    Raises:
        ConfigError: it is a URI.
    """
    if place is not None and is_uri(place):
        check_location(place, flag)
        raise ConfigError(f"{flag} {place} is no folder here; give a path, and copy from there.")
    return Path(place) if place else None


def shown_path(results: Results, path: Path) -> str:
    """What a file is called; one among the results, by where they are."""
    if path.is_relative_to(results.folder):
        return below(results.where, path.relative_to(results.folder).as_posix())
    return str(path)


def upload(results: Results) -> None:
    """What was written among results that lie at a URI goes there."""
    if results.mirror is not None:
        results.mirror.push()


def find_results(folder: str) -> list[str] | list[Path]:
    """The results folders at or below a folder, or URIs at or below one."""
    if is_uri(folder):
        return find_sweeps(folder)
    found = {path.parent for path in [*Path(folder).glob(RUNS), *Path(folder).glob(f"**/{RUNS}")]}
    # What a sweep that was killed has written as file://.
    return sorted(found | {path.parent.parent for path in Path(folder).glob(f"**/{PENDING_DIR}/*.json")})


def find_run(run: str, folder: str) -> tuple[Results, RunRecord]:
    """The one run whose name begins so, in a results folder or below.

    Raises:
        InputError: there is none, or there are several.
    """
    sweeps, unread = find_results(folder), []
    found: list[tuple[Results, RunRecord]] = []
    for path in sweeps:
        try:
            results = load(path)
            found += [(results, record) for record in results.records if record.run_id.startswith(run)]
        except InputError as error:
            unread.append(str(error))
    exact = [item for item in found if item[1].run_id == run]
    found = exact or found
    if not found:
        raise ConfigError(
            f"no run of {len(sweeps)} sweeps below {folder} is called {run}; dmls-ray export lists their names."
            + (f" {len(unread)} of them cannot be read: {unread[0]}" if unread else "")
        )
    if len(found) > 1:
        names = ", ".join(f"{record.run_id} in {results.where}" for results, record in found[:4])
        raise ConfigError(
            f"{len(found)} runs are called {run}: {names}{', ...' if len(found) > 4 else ''}; give one, or its DIR."
        )
    return found[0]


def draw_figures(results: Results, folder: Path, *, way_out: str = "name another with --out") -> list[Path]:
    """Draw the figures that have something to show; returns their files.

    Raises:
        StoreError: they cannot be written.
    """

    with writing(folder, way_out=way_out):
        return [path for chart in charts(summarize(results).table) for path in save(chart, folder)]


@contextmanager
def writing(folder: Path, *, way_out: str = "name another with --out") -> Iterator[None]:
    """What cannot be written within the block is bad input.

    Raises:
        StoreError: with the folder, why, and the way out.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise StoreError(f"{error.filename or folder} cannot be written ({why}); {way_out}.") from error


def print_result(
    frame: pd.DataFrame, notes: Sequence[str], form: str, console: Console, *, spare: Sequence[str] = ()
) -> None:
    """A table and its notes in one of the `FORMATS`; a CSV is the table alone."""

    if form == "csv":
        print(csv(frame), end="")
    elif form == "markdown":
        print(markdown(frame), "", *(f"- {markdown_text(note)}" if note else "" for note in notes), sep="\n")
    elif form == "latex":
        print(latex(frame), *map(latex_comment, notes), sep="\n")
    else:
        print_table(frame, console, spare=spare, elsewhere="--format csv")
        for note in notes:
            say(console, note)


def as_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of a frame that say anything, as texts."""

    def text(value: Any) -> str:
        if isinstance(value, float):
            return "" if value != value else GENERIC(value)
        return "" if value is None or value in ([], {}, "") else str(value)

    texts = frame.map(text)
    long = [head for head in texts.columns if texts[head].str.len().max() > 60]
    return texts[[head for head in texts.columns if head not in long and (texts[head] != "").any()]]
