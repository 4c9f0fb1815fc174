"""Write runs, ranks and epochs of a sweep as files for other programs."""

from __future__ import annotations

import argparse

from dmls_ray.analysis.export.files import with_uniform_columns
from dmls_ray.analysis.export.text_tables import csv
from dmls_ray.analysis.results import load
from dmls_ray.cli.console import Console, say
from dmls_ray.cli.parser import EXIT_OK, Parser
from dmls_ray.cli.results_io import (
    add_folder,
    local_folder,
    shown_path,
    upload,
    writing,
)
from dmls_ray.util.atomic import atomic_replace


def add_arguments(parser: Parser) -> None:
    add_folder(parser)
    parser.add_argument("--format", choices=("csv", "parquet", "json"), default="csv", help="(default: csv)")
    parser.add_argument("--out", metavar="DIR", help="Where to; without it, the sweep's folder")


def run(given: argparse.Namespace, console: Console) -> int:
    results = load(given.folder)
    out = local_folder(given.out, "--out") or results.folder
    frames = {
        "runs": results.runs,
        "ranks": results.ranks,
        "epochs": results.epochs,
        "rank_epochs": results.rank_epochs,
    }
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for name, frame in frames.items():
            path = out / f"{name}.{given.format}"
            with atomic_replace(path) as aside:
                if given.format == "csv":
                    aside.write_text(csv(frame), encoding="utf-8")
                elif given.format == "parquet":
                    with_uniform_columns(frame).to_parquet(aside, index=False)
                else:
                    # Not as JSON lines: runs.jsonl is the file of records.
                    frame.to_json(aside, orient="records", default_handler=str)
            say(console, f"{shown_path(results, path)}: {len(frame)} rows")
    upload(results)
    return EXIT_OK
