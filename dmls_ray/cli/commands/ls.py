"""List the sweeps below a folder."""

from __future__ import annotations

import argparse

import pandas as pd

from dmls_ray.analysis.results import load
from dmls_ray.cli.console import Console
from dmls_ray.cli.parser import EXIT_OK, Parser
from dmls_ray.cli.results_io import add_format, find_results, print_result
from dmls_ray.records.outcome import outcome_counts
from dmls_ray.storage.sweep_file import read_sweep
from dmls_ray.util.errors import InputError, StoreError


def add_arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", default="results", help="Where to look (default: results)")
    add_format(parser)


def run(given: argparse.Namespace, console: Console) -> int:
    rows = []
    for folder in find_results(given.folder):
        try:
            results = load(folder)
            sessions = read_sweep(results.folder).get("sessions", [])
        except InputError as error:
            # One that cannot be read hides no other.
            rows.append({"folder": str(folder), "outcome": str(error)})
            continue
        rows.append(
            {
                "folder": str(folder),
                "runs": str(len(results)),
                "outcome": outcome_counts(record.outcome for record in results.records),
                "last begun": max((record.started_at for record in results.records), default="")[:16].replace("T", " "),
                "hardware": ", ".join(sorted({record.machine.get("cpu", "") for record in results.records})),
                "question": (sessions[-1].get("question") or sessions[-1].get("axis") or "") if sessions else "",
            }
        )
    if not rows:
        raise StoreError(
            f"{given.folder} holds no sweep; name a folder that does, or run one: python sweeps/batch_size.py."
        )
    heads = ["folder", "runs", "outcome", "last begun", "hardware", "question"]
    frame = pd.DataFrame([{head: row.get(head, "") for head in heads} for row in rows], columns=heads)
    print_result(frame, [], given.format, console)
    return EXIT_OK
