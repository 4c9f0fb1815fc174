"""Print the table of a sweep and its answer, or one of the reports' tables."""

from __future__ import annotations

import argparse

from dmls_ray.analysis.export.text_tables import csv
from dmls_ray.analysis.results import load
from dmls_ray.analysis.summary.sweep_summary import summarize
from dmls_ray.analysis.table.layouts import RenderedTable, all_layouts, with_published_rows
from dmls_ray.cli.console import SPARE, Console
from dmls_ray.cli.parser import EXIT_OK, Parser
from dmls_ray.cli.results_io import (
    add_folder,
    add_format,
    print_result,
)


def add_arguments(parser: Parser) -> None:
    add_folder(parser)
    parser.add_argument("--by", choices=list(all_layouts()), help="One of the reports' tables, in place of the sweep's")
    parser.add_argument("--published", action="store_true", help="Add the published rows for comparison")
    add_format(parser)


def run(given: argparse.Namespace, console: Console) -> int:
    reading = summarize(load(given.folder))
    if given.by:
        layout = all_layouts()[given.by](reading.results, with_published=given.published)
    elif given.published:
        layout = with_published_rows(reading.table)
    else:
        layout = RenderedTable(reading.table.frame(), reading.table.notes)
    if given.format == "csv" and not given.by and not given.published:
        print(csv(reading.table.numbers()), end="")
        return EXIT_OK
    notes = [*layout.notes, *([] if given.by else ["", reading.sentence])]
    print_result(layout.frame, notes, given.format, console, spare=SPARE)
    return EXIT_OK
