"""Write the report of a sweep afresh: report.html, one file that needs no network."""

from __future__ import annotations

import argparse

from dmls_ray.analysis.export.files import write_derived_files
from dmls_ray.analysis.results import load
from dmls_ray.cli.console import Console, say
from dmls_ray.cli.parser import EXIT_OK, Parser
from dmls_ray.cli.results_io import (
    add_folder,
    upload,
)
from dmls_ray.storage.runs_file import RUNS
from dmls_ray.util.errors import StoreError
from dmls_ray.util.uri import below


def add_arguments(parser: Parser) -> None:
    add_folder(parser)


def run(given: argparse.Namespace, console: Console) -> int:
    results = load(given.folder)
    if not results.records:
        raise StoreError(f"{below(results.where, RUNS)} holds no run yet; run its sweep first.")
    write_derived_files(results)
    upload(results)
    say(console, below(results.where, "report.html"))
    return EXIT_OK
