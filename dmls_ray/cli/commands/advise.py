"""Say which configuration to use for an aim, what was not tried and would be worth it, and what cannot be said."""

from __future__ import annotations

import argparse

from dmls_ray.analysis.advise.objectives import OBJECTIVES
from dmls_ray.analysis.advise.rank import advise
from dmls_ray.analysis.results import load
from dmls_ray.cli.console import Console
from dmls_ray.cli.parser import EXIT_OK, Parser
from dmls_ray.cli.results_io import (
    add_folder,
    add_format,
    print_result,
)


def add_arguments(parser: Parser) -> None:
    add_folder(parser)
    parser.add_argument(
        "--for", dest="aim", choices=list(OBJECTIVES), default="throughput", help="(default: throughput)"
    )
    parser.add_argument(
        "--target-accuracy", type=float, metavar="SHARE", help="Test accuracy that is to be reached, 0 to 1"
    )
    parser.add_argument("--price-per-hour", type=float, metavar="PRICE", help="Price of a rank, for --for cost")
    parser.add_argument("--metric", help="What --for accuracy goes by; without it, validation or test accuracy")
    parser.add_argument(
        "--goal", choices=("auto", "max", "min"), default="auto", help="Whether it is to be large or small"
    )
    add_format(parser)


def run(given: argparse.Namespace, console: Console) -> int:
    found = advise(
        load(given.folder), given.aim, target=given.target_accuracy, price_per_hour=given.price_per_hour,
        metric=given.metric, minimizes=None if given.goal == "auto" else given.goal == "min",
    )  # fmt: skip
    print_result(found.frame(), [*found.notes, "", found.sentence], given.format, console)
    return EXIT_OK
