"""Show one run: its configuration, outcome, phases, epochs and ranks, and its log."""

from __future__ import annotations

import argparse

import pandas as pd

from dmls_ray.analysis.stats.formatting import GENERIC
from dmls_ray.cli.console import Console, print_table, say
from dmls_ray.cli.parser import EXIT_OK, Parser
from dmls_ray.cli.results_io import (
    as_texts,
    find_run,
)
from dmls_ray.util.paths import is_inside


def add_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="run_id, or its beginning")
    parser.add_argument("folder", metavar="DIR", nargs="?", default="results", help="Where to look (default: results)")


def run(given: argparse.Namespace, console: Console) -> int:
    results, record = find_run(given.run, given.folder)
    plain = record.to_dict()
    inner = ("config", "machine", "versions", "git", "epochs", "ranks", "traceback", "earlier_attempts", "picture")
    ended = f"{record.outcome.value}{f', {record.reason}' if record.reason else ''}"
    say(console, f"{record.run_id} in {results.where}: {ended}")
    for title, values in (
        ("Configuration", plain["config"]),
        ("Result", {name: value for name, value in plain.items() if name not in inner}),
        ("Machine", plain["machine"]),
        ("Versions", plain["versions"] | plain["git"]),
    ):
        say(console, f"\n{title}", style="bold")
        for name, value in values.items():
            if value not in (None, "", [], {}):
                say(console, f"  {name:24} {GENERIC(value) if isinstance(value, float) else value}")
    frames = {"Epochs": plain["epochs"], "Ranks": plain["ranks"], "Earlier attempts": plain["earlier_attempts"]}
    for title, rows in frames.items():
        if rows:
            say(console, f"\n{title}", style="bold")
            print_table(as_texts(pd.DataFrame(rows)), console)
    if record.traceback:
        say(console, "\nLog", style="bold")
        say(console, record.traceback)
    if record.picture:
        say(console, f"\nPicture: a JPEG, {len(record.picture):,} characters of base64; the report shows it.")
    files = results.folder / "runs" / record.run_id
    if files.is_dir() and is_inside(files, results.folder):
        say(console, f"\nFiles: {files}/ ({', '.join(sorted(path.name for path in files.iterdir()))})")
    return EXIT_OK
