"""Commands that find sweeps and runs below a folder: `ls`, `show`."""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

from dmls_ray.analysis.json_objects import Ls, RunningObject, Show
from dmls_ray.analysis.results import Results, load
from dmls_ray.analysis.stats.formatting import GENERIC
from dmls_ray.analysis.words import join_names
from dmls_ray.cli.commands.tables import add_format, print_result
from dmls_ray.cli.console import Console, Parser, print_json, print_table, say
from dmls_ray.config.value_texts import duration
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import outcome_counts
from dmls_ray.storage.location import find_sweeps
from dmls_ray.storage.progress import folders_with_progress, read_progress
from dmls_ray.util.errors import ConfigError, InputError, StoreError
from dmls_ray.util.files import is_inside, read_end
from dmls_ray.util.text import utf8_safe
from dmls_ray.util.uri import is_uri

_SECTIONS = (
    "metrics", "facts", "config", "code", "data", "machine", "versions", "git", "epochs", "ranks", "traceback",
    "earlier_attempts", "picture",
)  # fmt: skip
"""Fields of a record that `show` prints apart from the others."""

_SHOWN_BYTES = 20_000
"""Of the log of a rank, from its end."""

_WIDEST_CELL = 60
"""Characters of a text in a table of `show`."""


def _add_root(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", default="results", help="Where to look (default: results)")


def ls_arguments(parser: Parser) -> None:
    _add_root(parser)
    add_format(parser)


def ls(given: argparse.Namespace, console: Console) -> None:
    """List the sweeps below a folder."""
    running = None if is_uri(given.folder) else _running_below(given.folder)
    rows = [_describe_sweep(folder) for folder in find_sweeps(given.folder)]
    if not rows and not running:
        raise StoreError(
            f"{given.folder} holds no sweep; name a folder that does, or run one: python sweeps/batch_size.py."
        )
    if given.format == "json":
        print_json(Ls(sweeps=rows, running=running))
        return
    heads = dict.fromkeys(chain.from_iterable(rows))
    notes = []
    for sweep in running or []:
        ago = duration(sweep.seconds_since_progress)
        notes.append(f"{sweep.folder} goes on: {sweep.done} of {sweep.total} runs, last progress {ago} ago.")
    print_result({head: [row.get(head, "") for row in rows] for head in heads}, notes, given.format, console)


def _running_below(folder: str) -> list[RunningObject]:
    found = []
    for path in folders_with_progress(folder):
        if progress := read_progress(path):
            ago = round(max(0.0, time.time() - progress.seen_at), 1)
            found.append(RunningObject(utf8_safe(str(path)), progress.done, progress.total, progress.run_id, ago))
    return found


def _describe_sweep(folder: str | Path) -> dict[str, str]:
    """The row of a sweep; one that cannot be read has the reason."""
    row = {"folder": utf8_safe(str(folder))}
    try:
        results = load(folder)
        sessions = results.sessions
    except InputError as error:
        return row | {"outcome": utf8_safe(str(error))}
    records = results.records
    last = sessions[-1] if sessions else {}
    ended = Counter(record.trial_id for record in records)
    missing = sum(max(0, last.get("repeats", 0) - ended[trial]) for trial in last.get("trials", []))
    # The sweep was stopped before all runs of its last session had ended.
    row["runs"] = f"{len(records)} of {len(records) + missing}" if missing else str(len(records))
    begun = max((record.started_at for record in records), default="")
    return row | {
        "outcome": outcome_counts(record.ending for record in records),
        "last begun": begun[:16].replace("T", " "),
        "hardware": ", ".join(sorted({record.machine.get("cpu", "") for record in records})),
        "question": last.get("question") or last.get("axis") or "",
    }


def show_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="run_id, or its beginning")
    _add_root(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="Output format (default: text)")


def show(given: argparse.Namespace, console: Console) -> None:
    """Show one run: its configuration, outcome, phases, epochs and ranks, and its log."""
    results, record = _find_run(given.run, given.folder)
    if given.format == "json":
        print_json(Show(folder=str(results.where), run=record.to_dict()))
        return
    ended = ", ".join(filter(None, [record.ending, record.reason]))
    say(console, f"{record.run_id} in {results.where}: {ended}")
    fields: dict[str, Any] = {}
    for name, value in record.to_dict().items():
        if name not in _SECTIONS:
            # The configuration has the seed of the first repeat; runs.csv has the same name.
            fields["run_seed" if name == "seed" else name] = value
    for title, values in (
        ("Configuration", record.config),
        ("Result", fields | record.metrics | record.facts),
        ("Code", record.code),
        ("Data", record.data),
        ("Machine", record.machine),
        ("Versions", record.versions | record.git),
    ):
        texts = {name: _text(value) for name, value in values.items()}
        lines = [f"  {name:24} {text}" for name, text in texts.items() if text]
        if lines:
            say(console, f"\n{title}", style="bold")
            say(console, "\n".join(lines))
    for title, rows in (
        ("Epochs", [epoch.values for epoch in record.epochs]),
        ("Ranks", [rank.values for rank in record.ranks]),
        ("Earlier attempts", record.earlier_attempts),
    ):
        if rows:
            say(console, f"\n{title}", style="bold")
            columns = {}
            for head in dict.fromkeys(chain.from_iterable(rows)):
                cells = [_text(row.get(head)) for row in rows]
                # Without columns that are empty or too long for a table.
                if 0 < max(map(len, cells)) <= _WIDEST_CELL:
                    columns[head] = cells
            print_table(columns, console)
    if record.traceback:
        say(console, "\nLog", style="bold")
        say(console, record.traceback)
    files = results.folder / record.folder
    if files.is_dir() and is_inside(files, results.folder):
        names = sorted(path.name for path in files.iterdir() if not path.name.startswith("."))
        say(console, f"\nFiles: {files}/ ({', '.join(names)})")
        for path in sorted(files.glob("rank*.log")):
            say(console, f"\n{path.name}", style="bold")
            say(console, read_end(path, _SHOWN_BYTES))


def _text(value: Any) -> str:
    """A value of a record; empty where there is none."""
    if isinstance(value, float):
        return "" if math.isnan(value) else GENERIC(value)
    return "" if value in (None, [], {}) else str(value)


def _find_run(run: str, folder: str) -> tuple[Results, RunRecord]:
    """The run with this run_id, or the only run whose run_id begins so, in a results folder or below.

    Raises:
        ConfigError: there is no such run, or there are several.
    """
    if Path(run).is_dir():
        raise ConfigError(f"{run} is a folder; dmls-ray table {run} shows its runs, whose names are in {run}/runs.")
    sweeps = find_sweeps(folder)
    unread = ""
    found: list[tuple[Results, RunRecord]] = []
    for path in sweeps:
        try:
            results = load(path, stale=True)
        except InputError as error:
            unread = f" Not all of them can be read: {error}"
            continue
        found += [(results, record) for record in results.records if record.run_id.startswith(run)]
    if not found:
        raise ConfigError(
            f"no run of {len(sweeps)} sweeps below {folder} is called {run}; the folders in DIR/runs have their names."
            f"{unread}"
        )
    exact = [match for match in found if match[1].run_id == run]
    if len(exact or found) > 1:
        names = join_names([f"{record.run_id} in {results.where}" for results, record in found])
        raise ConfigError(f"{len(found)} runs are called {run}: {names}; give one, or its DIR.")
    return (exact or found)[0]
