"""Compare two sweeps: which configurations are faster in B than in A, which slower, beyond doubt."""

from __future__ import annotations

import argparse

from dmls_ray.analysis.compare.sweeps import compare_sweeps
from dmls_ray.analysis.results import load
from dmls_ray.cli.console import Console, print_error
from dmls_ray.cli.parser import EXIT_OK, Parser
from dmls_ray.cli.results_io import (
    add_format,
    print_result,
)
from dmls_ray.util.errors import ConfigError

EXIT_SLOWER = 3
"""`compare --fail-if-slower` found a slowdown beyond doubt."""


def add_arguments(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="Results folder to compare against, or its URI")
    parser.add_argument("b", metavar="B", help="Results folder that is compared, or its URI")
    parser.add_argument("--measure", help="What to compare; without it, images_per_s, or seconds a run")
    parser.add_argument("--fail-if-slower", metavar="SHARE", help="Exit with 3 if B is slower by more than this: 5%%")
    add_format(parser)


def run(given: argparse.Namespace, console: Console) -> int:
    share = None if given.fail_if_slower is None else _share(given.fail_if_slower)
    found = compare_sweeps(load(given.a), load(given.b), measure=given.measure)
    slower, lost = ([], []) if share is None else (found.slower_by_more_than(share), found.lost)
    print_result(found.frame(), [*found.notes, "", found.sentence], given.format, console)
    if slower:
        limit = f"{given.parser.prog}: B is slower than A by more than {given.fail_if_slower}"
        print_error(f"{limit}: {', '.join(slower)}.", EXIT_SLOWER)
    if lost:
        print_error(f"{given.parser.prog}: ok in A and never in B: {', '.join(lost)}.", EXIT_SLOWER)
    return EXIT_SLOWER if slower or lost else EXIT_OK


def _share(text: str) -> float:
    """`5%` or `0.05` as a fraction."""
    try:
        value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ConfigError(f"--fail-if-slower {text} is no share; give 5% or 0.05, say.")
    return value
