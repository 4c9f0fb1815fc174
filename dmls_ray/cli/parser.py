"""`Parser`: an argument parser that reports bad input in one line, with exit code 2.

It uses private attributes of argparse (seen in Python 3.11 to 3.14): `_negative_number_matcher`, `_actions` and
`_positionals`. Without the first, `--lr -1e-3` is refused; without the others, errors name no flag.
"""

from __future__ import annotations

import argparse
import difflib
import re
from typing import Any, NoReturn

from dmls_ray.util.text import escape_control_chars

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
        elif line.endswith("expected 3 arguments"):
            line = f"{line.split()[1].rstrip(':')} needs a field and two numbers: --range dropout 0 0.5, say."
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {line}\n")

    @property
    def flags(self) -> list[str]:
        """Every flag."""
        return [flag for action in self._actions for flag in action.option_strings]

    @property
    def switches(self) -> list[str]:
        """The flags without a value."""
        return [action.option_strings[-1] for action in self._actions if action.nargs == 0]

    @property
    def arguments(self) -> list[str]:
        """The positional arguments."""
        return [str(action.metavar or action.dest) for action in self._positionals._group_actions]


def add_folder(parser: Parser) -> None:
    """Add the argument that names a results folder."""
    parser.add_argument("folder", metavar="DIR", help="Results folder of a sweep, results/batch_size, say, or its URI")


def parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parse a command line; an unknown flag or argument ends the program with one line.

    The line is that of the command, if the parser has commands and sets `parser` to the one that was chosen.
    """
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen = getattr(given, "parser", None)
        _refuse(unknown[0], chosen if isinstance(chosen, Parser) else parser, arguments)
    return given


def _refuse(first: str, parser: Parser, arguments: list[str]) -> NoReturn:
    before = arguments[arguments.index(first) - 1] if first in arguments else ""
    if before in parser.switches:
        parser.error(f"{before} {first}: {before} takes no value; give it to switch that on, or leave it out.")
    if not first.startswith("-"):
        expected = " ".join(parser.arguments) or "flags alone"
        parser.error(f"{first} is one argument too many; expected {expected}: see --help.")
    close = difflib.get_close_matches(first.partition("=")[0], parser.flags, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    parser.error(f"{first} is no flag; {hint}--help lists them all.")
