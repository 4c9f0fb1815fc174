"""The words of a command line: one line for what is wrong with them, exit code 2."""

from __future__ import annotations

import argparse
import difflib
from typing import NoReturn

from dmls_ray.util.text import escape_control_chars

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, exit code 2."""
        line = escape_control_chars(" ".join(message.split()))
        if line.endswith(("expected at least one argument", "expected one argument")):
            line = f"{line.split()[1].rstrip(':')} needs a value; --help tells which."
        elif line.endswith("expected 3 arguments"):
            line = f"{line.split()[1].rstrip(':')} needs a field and two numbers: --range dropout 0 0.5, say."
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {line}\n")


def parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """What was given.

    What no flag and no argument stands for ends the program with one line, which is of the command that was named.
    """
    known, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen = getattr(known, "parser", None)
        parser = chosen if isinstance(chosen, Parser) else parser
        switches = [action.option_strings[-1] for action in parser._actions if action.nargs == 0]
        before = arguments[arguments.index(unknown[0]) - 1] if unknown[0] in arguments else ""
        if before in switches:
            parser.error(f"{before} {unknown[0]}: {before} takes no value; give it to switch that on, or leave it out.")
        if not unknown[0].startswith("-"):
            takes = [str(action.metavar or action.dest) for action in parser._positionals._group_actions]
            told = " ".join(takes) or "flags alone"
            parser.error(f"{unknown[0]} is one argument too many; what it takes is {told}: --help tells all.")
        flags = [flag for action in parser._actions for flag in action.option_strings]
        close = difflib.get_close_matches(unknown[0].partition("=")[0], flags, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        parser.error(f"{unknown[0]} is no flag; {hint}--help lists them all.")
    return known
