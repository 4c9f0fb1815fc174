"""Print tables, sentences and curves of the published reports, from their figures alone."""

from __future__ import annotations

import argparse

from dmls_ray.analysis.export.text_tables import latex_comment
from dmls_ray.analysis.published.data import REPORTS, published
from dmls_ray.analysis.summary.sentence import summarize_axis
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.layouts import all_layouts, published_runs
from dmls_ray.cli.console import Console, say
from dmls_ray.cli.parser import EXIT_OK, Parser
from dmls_ray.cli.results_io import (
    add_format,
    draw_figures,
    local_folder,
    print_result,
)
from dmls_ray.util.errors import ConfigError

_ONE_RUN = "Each value is of one run (n = 1) and has no interval."
"""What the notes of the reports' tables do not say."""


def add_arguments(parser: Parser) -> None:
    parser.add_argument("report", metavar="REPORT", nargs="?", choices=REPORTS, help=f"{', '.join(REPORTS)}; or all")
    parser.add_argument("--by", choices=list(all_layouts()), help="One of their tables alone")
    parser.add_argument("--figures", metavar="DIR", help="Draw their curves into this folder")
    add_format(parser)


def run(given: argparse.Namespace, console: Console) -> int:
    figures = local_folder(given.figures, "--figures")
    wanted = {name: report for name, report in REPORTS.items() if given.report in (None, name)}
    asked = [(report, by) for report, (_, layouts, _) in wanted.items() for by in layouts if given.by in (None, by)]
    if not asked:
        has = ", ".join(wanted[given.report][1])
        raise ConfigError(f"report {given.report} has no table by {given.by}; it has tables by {has}.")
    if given.format == "csv" and len(asked) > 1:
        raise ConfigError(
            f"--format csv is one table, and these are {len(asked)}; name a report and a table: "
            f"{given.parser.prog} {asked[0][0]} --by {asked[0][1]} --format csv, say."
        )
    # LaTeX reads the tables alone.
    as_text = latex_comment if given.format == "latex" else str
    for report, (dataset, _, axes) in wanted.items():
        results = published(dataset)
        notes: dict[str, None] = {}
        for by in (by for of, by in asked if of == report):
            if given.format != "csv":
                print()
                say(console, as_text(f"Report {report}, by {by}"), style="bold")
            layout = all_layouts()[by](published_runs(by, results))
            notes |= dict.fromkeys(layout.notes)
            print_result(layout.frame, [], given.format, console)
        table = make_table(results)
        sentences = [] if given.by else [summarize_axis(table, axis) for axis in axes]
        if given.format != "csv" and any(of == report for of, _ in asked):
            for sentence in (*notes, _ONE_RUN, *sentences):
                print()
                say(console, as_text(sentence))
        if figures is not None:
            drawn = draw_figures(results, figures / report, way_out="name another with --figures")
            for path in drawn if given.format != "csv" else ():
                say(console, as_text(str(path)))
    return EXIT_OK
