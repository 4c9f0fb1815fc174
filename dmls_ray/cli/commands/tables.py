"""Commands that print a table and what follows from it: `table`, `compare`, `advise`, `published`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pandas as pd

from dmls_ray.analysis.advise.objectives import OBJECTIVES
from dmls_ray.analysis.advise.rank import advise as advise_on
from dmls_ray.analysis.compare.sweeps import SweepComparison, compare_sweeps
from dmls_ray.analysis.export.text_tables import csv, latex, latex_comment, markdown, markdown_text
from dmls_ray.analysis.published.data import REPORTS
from dmls_ray.analysis.published.data import published as published_results
from dmls_ray.analysis.results import load, load_versions
from dmls_ray.analysis.stats.intervals import MIN_REPEATS
from dmls_ray.analysis.summary.answer import Answer
from dmls_ray.analysis.summary.phrases import join_names
from dmls_ray.analysis.summary.sweep_summary import answer_on_axis, summarize
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.layouts import RenderedTable, all_layouts, published_runs, with_published_rows
from dmls_ray.analysis.table.shown import shown_columns, spare_heads
from dmls_ray.cli.commands.files import draw_figures, local_folder
from dmls_ray.cli.console import Console, print_answer, print_error, print_table, say
from dmls_ray.cli.parser import EXIT_OK, Parser, add_columns, add_folder, add_stale
from dmls_ray.util.errors import ConfigError

EXIT_SLOWER = 3
"""`compare --fail-if-slower` found a slowdown beyond doubt."""
EXIT_UNCLEAR = 4
"""`compare --fail-if-slower` can neither say that there is such a slowdown nor rule it out."""

_ONE_RUN = "Each value is of one run (n = 1) and has no interval."
"""What the notes of the reports' tables do not say."""


def add_format(parser: Parser) -> None:
    formats = ("text", "markdown", "csv", "latex")
    parser.add_argument("--format", choices=formats, default="text", help="How to write it (default: text)")


def print_result(
    frame: pd.DataFrame, notes: Sequence[str], form: str, console: Console, *, spare: Sequence[str] = (),
    answer: Answer | None = None,
) -> None:  # fmt: skip
    """Print a table, its notes and its answer in one of the formats of `--format`; a CSV is the table alone."""
    if form == "csv":
        print(csv(frame), end="")
    elif form == "markdown":
        print(markdown(frame), "", *(f"- {markdown_text(note)}" if note else "" for note in notes), sep="\n")
        if answer is not None:
            print("", answer.markdown, sep="\n")
    elif form == "latex":
        lines = [] if answer is None else answer.text.splitlines()
        print(latex(frame), *map(latex_comment, [*notes, *lines]), sep="\n")
    else:
        print_table(frame, console, spare=spare, elsewhere="--format csv")
        for note in notes:
            say(console, note)
        if answer is not None:
            say(console, "")
            print_answer(answer, console)


def table_arguments(parser: Parser) -> None:
    add_folder(parser)
    add_stale(parser)
    parser.add_argument("--by", choices=list(all_layouts()), help="One of the reports' tables, in place of the sweep's")
    parser.add_argument("--published", action="store_true", help="Add the published rows for comparison")
    add_columns(parser)
    add_format(parser)


def table(given: argparse.Namespace, console: Console) -> None:
    """Print the table of a sweep and its answer, or one of the reports' tables."""
    if given.columns and (given.by or given.published):
        raise ConfigError("--columns is for the table of the sweep; leave it out, or leave out --by and --published.")
    reading = summarize(load(given.folder, stale=given.stale))
    spare: Sequence[str] = spare_heads()
    if given.by:
        layout = all_layouts()[given.by](reading.results, with_published=given.published)
    elif given.published:
        layout = with_published_rows(reading.table)
    elif given.format == "csv":
        columns = shown_columns(reading.table, given.columns).columns if given.columns else None
        print(csv(reading.table.numbers(columns)), end="")
        return
    else:
        shown = shown_columns(reading.table, given.columns)
        layout = RenderedTable(reading.table.frame(shown.columns), [*reading.table.notes, *shown.notes(given.folder)])
        spare = shown.spare
    answer = None if given.by else reading.answer
    print_result(layout.frame, layout.notes, given.format, console, spare=spare, answer=answer)


def compare_arguments(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="Results folder to compare against, or its URI")
    parser.add_argument(
        "b",
        metavar="B",
        nargs="?",
        help="Results folder that is compared, or its URI; without it, the current version of your code and data in A, "
        "against the last version that ran before it; if none did, against the last of the others",
    )
    parser.add_argument(
        "--versions",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="The two versions of your code and data in A to compare, by the numbers that table A --stale gives them, "
        "or current",
    )
    parser.add_argument("--measure", help="What to compare; without it, images_per_s, or seconds a run")
    parser.add_argument(
        "--fail-if-slower",
        metavar="SHARE",
        help="Exit with 3 if B is slower by more than this: 5%%; with 4 if that can neither be said nor ruled out",
    )
    add_format(parser)


def compare(given: argparse.Namespace, console: Console) -> int:
    """Compare two sweeps: which configurations are faster in B than in A, which slower, beyond doubt."""
    share = None if given.fail_if_slower is None else _share(given.fail_if_slower)
    if given.b is None:
        a, b, names = load_versions(given.a, given.versions)
    elif given.versions:
        raise ConfigError(f"--versions are two versions in one folder; leave out {given.b} or --versions.")
    else:
        a, b, names = load(given.a), load(given.b), ""
    comparison = compare_sweeps(a, b, measure=given.measure)
    notes = [*([names] if names else []), *comparison.notes, "", comparison.sentence]
    verdict = None if share is None else _verdict_on_slowdown(comparison, share, given.fail_if_slower)
    print_result(comparison.frame(), notes, given.format, console, spare=("outcome", "global_batch", "n"))
    return EXIT_OK if verdict is None else print_error(f"{given.parser.prog}: {verdict[0]}", verdict[1])


def _verdict_on_slowdown(comparison: SweepComparison, share: float, text: str) -> tuple[str, int] | None:
    """Why B is too slow, or may be, and the exit code; None where a slowdown by more than a share is ruled out.

    Args:
        comparison: of B with A.
        share: of A's speed.
        text: the share as it was given.
    """
    slower, unclear = comparison.slower_by_more_than(share), comparison.not_ruled_out(share)
    by_more = f"slower than A by more than {text}"
    texts = [f"B is {by_more}: {', '.join(slower)}."] if slower else []
    if comparison.lost:
        texts.append(f"ok in A and never in B: {', '.join(comparison.lost)}.")
    if texts:
        return " ".join(texts), EXIT_SLOWER
    if not unclear:
        return None
    if not comparison.knows_drift:
        why = f"below {MIN_REPEATS} sessions of each nothing is known of the drift from one to the next"
        return f"whether B is {by_more} cannot be said: {why}.", EXIT_UNCLEAR
    return f"that B is {by_more} is not ruled out: {join_names(unclear)}.", EXIT_UNCLEAR


def _share(text: str) -> float:
    """`5%` or `0.05` as a fraction."""
    try:
        value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ConfigError(f"--fail-if-slower {text} is no share; give 5% or 0.05, say.")
    return value


def advise_arguments(parser: Parser) -> None:
    add_folder(parser)
    add_stale(parser)
    parser.add_argument(
        "--for", dest="aim", choices=list(OBJECTIVES), default="throughput", help="(default: throughput)"
    )
    parser.add_argument(
        "--target-accuracy", type=float, metavar="SHARE", help="Test accuracy that is to be reached, 0 to 1"
    )
    parser.add_argument(
        "--any-accuracy", action="store_true", help="Also configurations that lose accuracy, or have a higher loss"
    )
    parser.add_argument("--price-per-hour", type=float, metavar="PRICE", help="Price of a rank, for --for cost")
    parser.add_argument(
        "--batch", type=int, metavar="SAMPLES", help="Batch that was not run, whose memory --for memory estimates"
    )
    parser.add_argument("--metric", help="What --for accuracy goes by; without it, validation or test accuracy")
    parser.add_argument(
        "--goal", choices=("auto", "max", "min"), default="auto", help="Whether it is to be large or small"
    )
    add_format(parser)


def advise(given: argparse.Namespace, console: Console) -> None:
    """Say which configuration to use for an aim, what was not tried and would be worth it, and what cannot be said."""
    results = load(given.folder, stale=given.stale)
    advice = advise_on(
        results, given.aim, target=given.target_accuracy, price_per_hour=given.price_per_hour,
        metric=given.metric, minimizes=None if given.goal == "auto" else given.goal == "min", batch=given.batch,
        any_accuracy=given.any_accuracy,
    )  # fmt: skip
    notes = [*advice.notes, "", advice.sentence]
    print_result(advice.frame(), notes, given.format, console, spare=advice.spare)


def published_arguments(parser: Parser) -> None:
    parser.add_argument("report", metavar="REPORT", nargs="?", choices=REPORTS, help=f"{', '.join(REPORTS)}; or all")
    parser.add_argument("--by", choices=list(all_layouts()), help="One of their tables alone")
    parser.add_argument("--figures", metavar="DIR", help="Draw their curves into this folder")
    add_format(parser)


def published(given: argparse.Namespace, console: Console) -> None:
    """Print tables, answers and curves of the published reports, from their figures alone."""
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
        results = published_results(dataset)
        notes: dict[str, None] = {}
        for by in (by for of, by in asked if of == report):
            if given.format != "csv":
                print()
                say(console, as_text(f"Report {report}, by {by}"), style="bold")
            layout = all_layouts()[by](published_runs(by, results))
            notes |= dict.fromkeys(layout.notes)
            print_result(layout.frame, [], given.format, console)
        results_table = make_table(results)
        answers = [] if given.by else [answer_on_axis(results_table, axis).text for axis in axes]
        if given.format != "csv" and any(of == report for of, _ in asked):
            for text in (*notes, _ONE_RUN, *answers):
                print()
                say(console, "\n".join(map(as_text, text.splitlines())))
        if figures is not None:
            drawn = draw_figures(results, figures / report, way_out="name another with --figures")
            for path in drawn if given.format != "csv" else ():
                say(console, as_text(str(path)))
