"""`Parser`: an argument parser that reports bad input in one line, with exit code 2.

It uses private attributes of argparse (seen in Python 3.11 to 3.14): `_negative_number_matcher`, `_actions` and
`_positionals`. Without the first, `--lr -1e-3` is refused; without the others, errors name no flag.
"""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from dmls_ray.config.fields import field_specs
from dmls_ray.config.options import Options
from dmls_ray.util.text import did_you_mean, escape_control_chars

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # argparse takes -1 for a value and -1e-3 for a flag.
        self._negative_number_matcher = re.compile(r"^-\d+$|^-\d*\.?\d+([eE][-+]?\d+)?$")

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with code 2."""
        line = escape_control_chars(" ".join(message.split()))
        if line.endswith(("expected at least one argument", "expected one argument")):
            line = f"{line.split()[1].rstrip(':')} needs a value; --help lists them."
        elif line.endswith("expected 2 arguments"):
            line = f"{line.split()[1].rstrip(':')} needs two versions: --versions 1 current, say."
        elif line.endswith("expected 3 arguments"):
            line = f"{line.split()[1].rstrip(':')} needs a field and two numbers: --range dropout 0 0.5, say."
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {line}\n")

    def refuse(self, unknown: str, arguments: list[str]) -> NoReturn:
        """Print one line about an unknown flag or argument, with what may have been meant, and exit with code 2."""
        switches = [action.option_strings[-1] for action in self._actions if action.nargs == 0]
        before = arguments[arguments.index(unknown) - 1] if unknown in arguments else ""
        if before in switches and not unknown.startswith("--"):
            self.error(f"{before} {unknown}: {before} takes no value; give it to switch that on, or leave it out.")
        if not unknown.startswith("-"):
            positional = [str(action.metavar or action.dest) for action in self._positionals._group_actions]
            expected = " ".join(positional) or "flags alone"
            self.error(f"{unknown} is one argument too many; expected {expected}: see --help.")
        flags = [flag for action in self._actions for flag in action.option_strings]
        self.error(f"{unknown} is no flag; {did_you_mean(unknown.partition('=')[0], flags)}--help lists them all.")


def add_folder(parser: Parser) -> None:
    """Add the argument that names a results folder."""
    parser.add_argument("folder", metavar="DIR", help="Results folder of a sweep, results/batch_size, say, or its URI")


def add_stale(parser: Parser) -> None:
    """Add the flag that includes runs of earlier versions of the user's code and data."""
    parser.add_argument("--stale", action="store_true", help=field_specs(Options)["stale"].help.rstrip("."))


def add_columns(parser: Parser) -> None:
    """Add the flag that chooses the columns of a table."""
    parser.add_argument(
        "--columns",
        nargs="+",
        default=[],
        metavar="NAME",
        help="Columns to show next to the factors; all: all of them",
    )


def parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parse a command line; an unknown flag or argument ends the program with one line.

    The line is that of the command, if the parser has commands and sets `parser` to the one that was chosen.
    """
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen = getattr(given, "parser", None)
        (chosen if isinstance(chosen, Parser) else parser).refuse(unknown[0], arguments)
    return given
