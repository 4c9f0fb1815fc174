"""Draw the figures of a sweep as PNG and SVG."""

from __future__ import annotations

import argparse

from dmls_ray.analysis.results import load
from dmls_ray.cli.console import Console, say
from dmls_ray.cli.parser import EXIT_OK, Parser
from dmls_ray.cli.results_io import (
    add_folder,
    draw_figures,
    local_folder,
    shown_path,
    upload,
)
from dmls_ray.util.errors import StoreError


def add_arguments(parser: Parser) -> None:
    add_folder(parser)
    parser.add_argument("--out", metavar="DIR", help="Where to; without it, figures/ in the sweep's folder")


def run(given: argparse.Namespace, console: Console) -> int:
    results = load(given.folder)
    default = results.folder / "figures"
    if not given.out and default.is_symlink():
        raise StoreError(f"{default} is a link, which may lead anywhere; remove it, or name a folder with --out.")
    drawn = draw_figures(results, local_folder(given.out, "--out") or default)
    upload(results)
    for path in drawn:
        say(console, shown_path(results, path))
    if not drawn:
        say(console, f"No figure shows anything of these {len(results)} runs; dmls-ray table shows their numbers.")
    return EXIT_OK
