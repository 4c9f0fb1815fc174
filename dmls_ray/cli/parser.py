"""`Parser`: an argument parser that reports bad input in one line, with exit code 2.

It uses two private attributes of argparse (seen in Python 3.11 to 3.14). Without `_negative_number_matcher`,
`--lr -1e-3` is refused; without `_option_string_actions`, an unknown flag gets no suggestion.
"""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from dmls_ray.config.options import FLAGS
from dmls_ray.util.text import did_you_mean, escape_control_chars

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # argparse takes -1 for a value and -1e-3 for a flag.
        self._negative_number_matcher = re.compile(r"^-\d+$|^-\d*\.?\d+([eE][-+]?\d+)?$")

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with code 2."""
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {escape_control_chars(' '.join(message.split()))}\n")

    def refuse(self, unknown: str) -> NoReturn:
        """Print one line about an unknown flag or argument, with what may have been meant, and exit with code 2."""
        if not unknown.startswith("-"):
            self.error(f"{unknown} is one argument too many; --help shows what is expected.")
        meant = did_you_mean(unknown.partition("=")[0], [*self._option_string_actions])
        self.error(f"{unknown} is no flag; {meant}--help lists them all.")


def add_folder(parser: Parser, *, stale: bool = False) -> None:
    """Add the argument that names a results folder, and the flag that includes runs with other code or data."""
    parser.add_argument("folder", metavar="DIR", help="Results folder of a sweep, results/batch_size, say, or its URI")
    if stale:
        parser.add_argument("--stale", action="store_true", help=FLAGS["stale"].help.rstrip("."))


def parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parse a command line; an unknown flag or argument ends the program with one line.

    The line is that of the command, if the parser has commands and sets `parser` to the one that was chosen.
    """
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen = getattr(given, "parser", None)
        (chosen if isinstance(chosen, Parser) else parser).refuse(unknown[0])
    return given
