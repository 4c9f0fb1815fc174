"""Commands that print a table and what follows from it: `table`, `compare`, `advise`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import console as rich_console

from dmls_ray.analysis.advise.advice import Advice
from dmls_ray.analysis.advise.objectives import OBJECTIVES
from dmls_ray.analysis.advise.rank import advise as advise_on
from dmls_ray.analysis.compare.sweeps import SweepComparison, compare_sweeps
from dmls_ray.analysis.export.text_tables import Cells, answer_markdown, csv, latex, markdown, markdown_text
from dmls_ray.analysis.json_objects import Table
from dmls_ray.analysis.prices import with_prices
from dmls_ray.analysis.results import load
from dmls_ray.analysis.stats.intervals import MIN_REPEATS
from dmls_ray.analysis.summary import AnswerTable, SweepSummary, summarize
from dmls_ray.analysis.table.named_layouts import ALL, all_layouts, render, shown_columns, spare_heads
from dmls_ray.analysis.words import join_names
from dmls_ray.cli.console import (
    EXIT_OK,
    EXIT_SLOWER,
    EXIT_UNCLEAR,
    Console,
    Parser,
    add_folder,
    print_answer,
    print_error,
    print_json,
    print_table,
    say,
)
from dmls_ray.config.value_texts import share_of
from dmls_ray.util.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


def add_format(parser: Parser) -> None:
    formats = ("text", "markdown", "csv", "latex", "json")
    parser.add_argument("--format", choices=formats, default="text", help="Output format (default: text)")


def print_result(
    cells: Cells | pd.DataFrame,
    notes: Sequence[str],
    form: str,
    console: rich_console.Console,
    *,
    spare: Sequence[str] = (),
) -> None:
    """Print a table and its notes in one of the formats of `--format`; CSV is the table alone."""
    if form == "csv":
        print(csv(cells), end="")
    elif form == "latex":
        print(latex(cells, notes))
    elif form == "markdown":
        print(markdown(cells), "", sep="\n")
        for note in notes:
            print(f"- {markdown_text(note)}" if note else "")
    else:
        print_table(cells, console, spare=spare)
        for note in notes:
            say(console, note)


def print_answer_as(answer: AnswerTable, form: str, console: rich_console.Console) -> None:
    """Print an answer as text or Markdown, after an empty line; the other formats have none."""
    if form == "markdown":
        print("", answer_markdown(answer), sep="\n")
    elif form == "text":
        say(console, "")
        print_answer(answer, console)


def table_arguments(parser: Parser) -> None:
    add_folder(parser, stale=True, price=True)
    parser.add_argument("--by", choices=list(all_layouts()), help="Print a table for one question instead")
    parser.add_argument(
        "--columns", nargs="+", default=[], metavar="NAME", help="Columns to show next to the factors, or all"
    )
    add_format(parser)


def table(given: argparse.Namespace, console: Console) -> None:
    """Print the table of a sweep and its answer, or a table for one question."""
    if given.by and given.columns:
        raise ConfigError("--columns is for the table of the sweep; leave it out, or leave out --by.")
    if given.format == "json" and (given.by or given.columns):
        raise ConfigError("--format json is the answer of the sweep; leave out --by and --columns.")
    reading = summarize(with_prices(load(given.folder, stale=given.stale), given.price))
    if given.format == "json":
        print_json(Table(**reading.json_fields()))
        return
    print_summary(reading, given.format, console, by=given.by, columns=given.columns)


def print_summary(
    reading: SweepSummary, form: str, console: rich_console.Console, *, by: str | None = None,
    columns: Sequence[str] = (),
) -> None:  # fmt: skip
    """Print the table of a sweep, or a table for one question, and the answer of the sweep.

    Args:
        reading: the sweep.
        form: as after `--format`; CSV and LaTeX are the table alone.
        console: where to.
        by: the name of that table.
        columns: heads or metrics of the columns, next to the factors; without any, those of a page.
    """
    if by:
        layout = render(reading.results, by)
        print_result(layout.frame, layout.notes, form, console, spare=spare_heads())
    else:
        found = reading.table
        if form == "csv" and not columns:
            columns = [ALL]
        shown = shown_columns(found, columns)
        if form == "csv":
            print(csv(found.numbers(shown.columns)), end="")
            return
        notes = [*found.notes, *shown.notes(reading.results.where)]
        print_result(found.cells(shown.columns), notes, form, console, spare=shown.spare or spare_heads())
    print_answer_as(reading.answer, form, console)


def compare_arguments(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="Results folder to compare against, or its URI")
    parser.add_argument("b", metavar="B", help="Results folder that is compared, or its URI")
    parser.add_argument("--measure", help="Metric to compare (default: the throughput, or else seconds per run)")
    parser.add_argument(
        "--fail-if-slower",
        metavar="SHARE",
        help="Exit with code 3 if B is slower by more than this share (5%%), with 4 if that is neither shown nor "
        "ruled out",
    )
    add_format(parser)


def compare(given: argparse.Namespace, console: Console) -> int:
    """Compare two sweeps: which configurations are faster or slower in B than in A, beyond chance."""
    comparison = compare_sweeps(load(given.a), load(given.b), measure=given.measure)
    code, reason = EXIT_OK, ""
    if given.fail_if_slower is not None:
        code, reason = _judge(comparison, given.fail_if_slower)
    _print_finding(comparison, given.format, console)
    return print_error(f"{given.parser.prog}: {reason}", code) if reason else code


def _print_finding(found: SweepComparison | Advice, form: str, console: Console) -> None:
    """Print a comparison or an advice."""
    if form == "json":
        print_json(found.json_object())
    else:
        notes = [*found.notes(), "", found.headline()]
        print_result(found.frame(), notes, form, console, spare=found.spare)


def _judge(comparison: SweepComparison, text: str) -> tuple[int, str]:
    """The exit code, and why B is too slow, or may be; empty where a slowdown by more than a share is ruled out.

    Args:
        comparison: of B with A.
        text: the share of A's speed, `5%` or `0.05`.
    """
    try:
        slower, unclear = comparison.judge_slowdown(share_of(text))
    except ValueError as error:
        raise ConfigError(f"--fail-if-slower {text}: {error}.") from None
    if slower:
        return EXIT_SLOWER, f"B is slower than A by more than {text}: {join_names(slower)}."
    if comparison.lost:
        return EXIT_SLOWER, f"ok in A and never in B: {join_names(comparison.lost)}."
    if not unclear:
        return EXIT_OK, ""
    why = join_names(unclear)
    if not comparison.basis.knows_drift:
        why = f"{why}; a verdict needs {MIN_REPEATS} sessions of each"
    return EXIT_UNCLEAR, f"B may be slower than A by more than {text}: {why}."


def advise_arguments(parser: Parser) -> None:
    add_folder(parser, stale=True, price=True)
    add = parser.add_argument
    add("--for", dest="aim", choices=list(OBJECTIVES), default="throughput", help="(default: throughput)")
    add("--target-accuracy", type=float, metavar="SHARE", help="Test accuracy to reach, from 0 to 1")
    add("--any-accuracy", action="store_true", help="Include configurations that lose accuracy or have a higher loss")
    add("--metric", help="Metric of --for accuracy (default: validation accuracy, or else test accuracy)")
    add(
        "--goal",
        choices=("auto", "max", "min"),
        default="auto",
        help="Whether more (max) or less (min) of the metric is better",
    )
    add_format(parser)


def advise(given: argparse.Namespace, console: Console) -> None:
    """Rank the configurations of a sweep by an objective, with intervals and verdicts."""
    results = with_prices(load(given.folder, stale=given.stale), given.price)
    advice = advise_on(
        results,
        given.aim,
        target=given.target_accuracy,
        metric=given.metric or "",
        minimizes={"auto": None, "max": False, "min": True}[given.goal],
        any_accuracy=given.any_accuracy,
    )
    _print_finding(advice, given.format, console)
