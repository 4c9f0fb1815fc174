"""Commands that find sweeps and runs below a folder: `ls`, `show`."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import pandas as pd

from dmls_ray.analysis.results import Results, load
from dmls_ray.analysis.stats.formatting import GENERIC
from dmls_ray.cli.commands.tables import add_format, print_result
from dmls_ray.cli.console import Console, print_table, say
from dmls_ray.cli.parser import Parser
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import outcome_counts
from dmls_ray.records.versions import folder_of
from dmls_ray.storage.location import find_sweeps
from dmls_ray.storage.sweep_file import read_sweep
from dmls_ray.util.errors import ConfigError, InputError, StoreError
from dmls_ray.util.paths import is_inside
from dmls_ray.util.text import utf8_safe

_OTHERS = "other versions"
"""Head of the column of `ls` with the number of runs of other versions of the code and data than the current one."""


def _add_root(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", default="results", help="Where to look (default: results)")


def ls_arguments(parser: Parser) -> None:
    _add_root(parser)
    add_format(parser)


def ls(given: argparse.Namespace, console: Console) -> None:
    """List the sweeps below a folder."""
    rows = []
    for folder in find_sweeps(given.folder):
        try:
            results = load(folder)
            sessions = read_sweep(results.folder).get("sessions", [])
        except InputError as error:
            # One that cannot be read hides no other.
            rows.append({"folder": utf8_safe(str(folder)), "outcome": utf8_safe(str(error))})
            continue
        rows.append(
            {
                "folder": utf8_safe(str(folder)),
                "runs": _count_runs(results, sessions),
                _OTHERS: str(len(_left_out_runs(results))),
                "outcome": outcome_counts(record.ending for record in results.records),
                "last begun": max((record.started_at for record in results.records), default="")[:16].replace("T", " "),
                "hardware": ", ".join(sorted({record.machine.get("cpu", "") for record in results.records})),
                "question": (sessions[-1].get("question") or sessions[-1].get("axis") or "") if sessions else "",
            }
        )
    if not rows:
        raise StoreError(
            f"{given.folder} holds no sweep; name a folder that does, or run one: python sweeps/batch_size.py."
        )
    left_out = any(row.get(_OTHERS, "0") != "0" for row in rows)
    heads = ["folder", "runs", *([_OTHERS] if left_out else []), "outcome", "last begun", "hardware", "question"]
    note = "Not in runs: those of other versions of your code and data; dmls-ray table DIR --stale includes them."
    print_result(
        pd.DataFrame([{head: row.get(head, "") for head in heads} for row in rows]),
        [note] if left_out else [],
        given.format,
        console,
    )


def _count_runs(results: Results, sessions: list[dict[str, Any]]) -> str:
    """`24`, or `5 of 24` where a sweep was stopped before all runs of its last command had ended."""
    last = sessions[-1] if sessions else {}
    ended = Counter(record.trial_id for record in results.records)
    missing = sum(max(0, last.get("repeats", 0) - ended[trial]) for trial in last.get("trials", []))
    return f"{len(results)} of {len(results) + missing}" if missing else str(len(results))


def _left_out_runs(results: Results) -> list[RunRecord]:
    """The runs of earlier versions that the results leave out, with the names that `load(stale=True)` gives them."""
    versions = results.versions
    return versions.distinguished()[: len(versions.earlier)] if versions else []


def show_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="run_id, or its beginning")
    _add_root(parser)


def show(given: argparse.Namespace, console: Console) -> None:
    """Show one run: its configuration, outcome, phases, epochs and ranks, and its log."""
    results, record = _find_run(given.run, given.folder)
    _ = record.epochs, record.ranks  # their values are checked at their first use
    plain = record.to_dict()
    inner = (
        "config", "code", "data", "machine", "versions", "git", "epochs", "ranks", "traceback", "earlier_attempts",
        "picture",
    )  # fmt: skip
    ended = f"{record.ending}{f', {record.reason}' if record.reason else ''}"
    say(console, f"{record.run_id} in {results.where}: {ended}")
    for title, values in (
        ("Configuration", plain["config"]),
        ("Result", {name: value for name, value in plain.items() if name not in inner}),
        ("Code", plain["code"]),
        ("Data", plain["data"]),
        ("Machine", plain["machine"]),
        ("Versions", plain["versions"] | plain["git"]),
    ):
        if not values:
            continue
        say(console, f"\n{title}", style="bold")
        for name, value in values.items():
            if value not in (None, "", [], {}):
                say(console, f"  {name:24} {GENERIC(value) if isinstance(value, float) else value}")
    frames = {"Epochs": plain["epochs"], "Ranks": plain["ranks"], "Earlier attempts": plain["earlier_attempts"]}
    for title, rows in frames.items():
        if rows:
            say(console, f"\n{title}", style="bold")
            print_table(_as_texts(pd.DataFrame(rows)), console)
    if record.traceback:
        say(console, "\nLog", style="bold")
        say(console, record.traceback)
    if record.picture:
        say(console, f"\nPicture: a JPEG, {len(record.picture):,} characters of base64; the report shows it.")
    files = results.folder / folder_of(record)
    if files.is_dir() and is_inside(files, results.folder):
        names = sorted(path.name for path in files.iterdir() if not path.name.startswith("."))
        say(console, f"\nFiles: {files}/ ({', '.join(names)})")


def _find_run(run: str, folder: str) -> tuple[Results, RunRecord]:
    """The run with this run_id, or the only run whose run_id begins so, in a results folder or below. Runs
    of the current version come before those of earlier ones.

    Raises:
        ConfigError: there is no such run, or there are several.
    """
    sweeps = find_sweeps(folder)
    unread: list[str] = []
    matches: list[tuple[Results, RunRecord]] = []
    earlier: list[tuple[Results, RunRecord]] = []
    for path in sweeps:
        try:
            results = load(path)
            matches += [(results, record) for record in results.records if record.run_id.startswith(run)]
            earlier += [(results, record) for record in _left_out_runs(results) if record.run_id.startswith(run)]
        except InputError as error:
            unread.append(str(error))
    matches = [match for match in (*matches, *earlier) if match[1].run_id == run] or matches or earlier
    if not matches:
        raise ConfigError(
            f"no run of {len(sweeps)} sweeps below {folder} is called {run}; dmls-ray export lists their names."
            + (f" {len(unread)} of them cannot be read: {unread[0]}" if unread else "")
        )
    if len(matches) > 1:
        names = ", ".join(f"{record.run_id} in {results.where}" for results, record in matches[:4])
        raise ConfigError(
            f"{len(matches)} runs are called {run}: {names}{', ...' if len(matches) > 4 else ''}; give one, or its DIR."
        )
    return matches[0]


def _as_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """The values of a frame as texts, without columns that are empty or that have texts of more than 60 characters."""

    def text(value: Any) -> str:
        if isinstance(value, float):
            return "" if value != value else GENERIC(value)
        return "" if value is None or value in ([], {}, "") else str(value)

    texts = frame.map(text)
    long = [head for head in texts.columns if texts[head].str.len().max() > 60]
    return texts[[head for head in texts.columns if head not in long and (texts[head] != "").any()]]
