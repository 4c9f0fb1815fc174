"""The command line and the console: flags, exit codes, and tables fitted to the width of a terminal."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from rich import box
from rich import console as rich_console
from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from dmls_ray.config.options import FLAGS
from dmls_ray.records.codec import encode_json
from dmls_ray.util.text import did_you_mean, escape_control_chars

if TYPE_CHECKING:
    import pandas as pd

    from dmls_ray.analysis.export.text_tables import Cells
    from dmls_ray.analysis.summary import AnswerTable

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130
EXIT_SLOWER = 3
"""A slowdown beyond doubt."""
EXIT_UNCLEAR = 4
"""Whether there is a slowdown can be neither said nor ruled out."""

EXIT_DIFFERENT = 3
"""Settings that train otherwise, beyond rounding."""

EXIT_CODES = """Exit codes: 0 answered, 1 failed, 2 wrong usage, 3 slower (ab, compare,
doctor) or different (same), 4 cannot say (ab, compare, same), 75 Ray was lost,
130 stopped."""

_SYNONYMS = {
    "--ranks": ("--world-size",),
    "--nproc-per-node": ("--world-size",),
    "--nproc_per_node": ("--world-size",),
    "--num-processes": ("--world-size",),
    "--gpus": ("--world-size",),
    "--nnodes": ("--machines",),
    "--num-workers": ("--loader-workers", "--workers"),
    "--workers": ("--loader-workers", "--num-workers"),
    "--learning-rate": ("--lr",),
    "--batch-size": ("--batch-per-rank",),
    "--bf16": ("--precision amp-bf16",),
    "--fp16": ("--precision amp-fp16",),
    "--amp": ("--precision amp-bf16",),
    "--gradient-accumulation-steps": ("--accum-steps",),
    "--num-epochs": ("--epochs",),
    "--num-samples": ("--trials",),
    "--storage-path": ("--out",),
}
"""Flags of other programs -> what may be meant; the first that there is."""

MOST_DRAWN = 1000
"""Rows of a table that are drawn to fit the terminal; to fit tens of thousands takes half a minute."""

_WRAPPED = ("hardware", "question", "outcome", "reason")
"""Columns of words, which may take several lines."""
_NARROWEST = 16
"""Characters that such a column keeps of its width."""
_WIDEST_ANSWER = 100
"""Characters of a line of an answer: longer ones are hard to read."""


About = Callable[[str, str], str]
"""Says a line on an unknown flag, with a question on what may have been meant; empty for the usual line."""


class Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **options: Any) -> None:
        options = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter, **options}
        super().__init__(*args, **options)
        # argparse takes -1 for a value and -1e-3 for a flag.
        self._negative_number_matcher = re.compile(r"^-\d+$|^-\d*\.?\d+([eE][-+]?\d+)?$")

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with code 2."""
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {escape_control_chars(' '.join(message.split()))}\n")

    def refuse(self, unknown: str, about: About) -> NoReturn:
        """Print one line about an unknown flag or argument, with what may have been meant, and exit with code 2.

        Args:
            unknown: the word.
            about: says a line of its own on some flags.
        """
        if not unknown.startswith("-"):
            self.error(f"{unknown} is one argument too many; --help shows what is expected.")
        flag = unknown.partition("=")[0]
        usual = [known for known in _SYNONYMS.get(flag, ()) if known.split()[0] in self._option_string_actions]
        synonym = f"did you mean {usual[0]}? " if usual else ""
        if line := about(unknown, synonym):
            self.error(line)
        meant = synonym or did_you_mean(flag, [*self._option_string_actions])
        self.error(f"{unknown} is no flag; {meant}--help lists them all.")


_PRICE = "Price of an hour of each GPU, or of a machine without one, by a word of its name: h100=2.99 a10g=1.01"


def add_folder(parser: Parser, *, stale: bool = False, price: bool = False) -> None:
    """Add the argument that names a results folder, and the flags for runs with other code or data and for prices."""
    parser.add_argument(
        "folder", metavar="DIR", help="Results folder of a sweep, for example results/batch_size, or its URI"
    )
    if stale:
        parser.add_argument("--stale", action="store_true", help=FLAGS["stale"].help.rstrip("."))
    if price:
        parser.add_argument("--price", nargs="+", default=[], metavar="NAME=PRICE", help=_PRICE)


def parse(parser: Parser, arguments: list[str], about: About = lambda unknown, meant: "") -> argparse.Namespace:
    """Parse a command line; an unknown flag or argument ends the program with one line.

    The line is that of the command, if the parser has commands and sets `parser` to the one that was chosen; `about` is
    as that of `Parser.refuse`.
    """
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen = getattr(given, "parser", None)
        (chosen if isinstance(chosen, Parser) else parser).refuse(unknown[0], about)
    return given


class Console(rich_console.Console):
    """Where tables go. A reader that has read enough (`| head`) raises, and does not end the program with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def print_json(found: Any) -> None:
    """Print what a command has found, for programs: one of `json_objects.KINDS`."""
    print(msgspec.json.format(encode_json(found, default=str), indent=2).decode())


def say(console: rich_console.Console, text: str, style: str | None = None) -> None:
    """A line as it is: no mark-up and no command to the terminal in it is read, and none of it is cut."""
    console.print(escape_control_chars(text), style=style, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_answer(answer: AnswerTable, console: rich_console.Console) -> None:
    """An answer in lines that fit the terminal and are never long."""
    width = min(console.width, _WIDEST_ANSWER) if console.is_terminal else _WIDEST_ANSWER
    bold = len(textwrap.wrap(answer.headline, width, break_on_hyphens=False))
    for place, line in enumerate(answer.lines(width)):
        say(console, line, "bold" if place < bold else None)


def print_error(line: str, code: int) -> int:
    """Print a line to standard error; returns the exit code."""
    print(escape_control_chars(line), file=sys.stderr)
    return code


def print_table(cells: Cells | pd.DataFrame, console: rich_console.Console, *, spare: Sequence[str] = ()) -> None:
    """A table of texts as wide as it is in a pipe; in a terminal none of its columns is cut.

    If the terminal is too narrow, words take several lines, then heads and intervals separate lines, then columns go
    that it can spare, and are named. What is too wide even so is broken by the terminal.

    Args:
        cells: the texts.
        console: where to.
        spare: heads of columns that may be left out, the first first.
    """
    from dmls_ray.analysis.export.text_tables import plain_columns

    escaped = {}
    for head, texts in cells.items():
        escaped[escape_control_chars(str(head))] = [escape_control_chars(text) for text in texts]
    if max(map(len, escaped.values()), default=0) > MOST_DRAWN:
        try:
            print(plain_columns(escaped), flush=True)
        except BrokenPipeError:
            console.on_broken_pipe()
        return
    columns = {head: [head, *texts] for head, texts in escaped.items()}
    hidden: list[str] = []
    if console.is_terminal and _width(columns, is_wrapped=True) > console.width:
        columns = {head: _stacked(texts) for head, texts in columns.items()}
        for head in spare:
            if head in columns and _width(columns, is_wrapped=True) > console.width:
                columns.pop(head)
                hidden.append(head)
    console.width = max(console.width, _width(columns, is_wrapped=console.is_terminal))
    console.print(_drawn(columns))
    if hidden:
        names = ", ".join(hidden)
        say(console, f"Not shown at this width: {names}; a wider terminal or --format csv shows them.", "dim")


def _drawn(columns: dict[str, list[str]]) -> Table:
    """The table for the terminal, whose columns of words take as many lines as they need."""
    from dmls_ray.analysis.export.text_tables import LEFT_ALIGNED

    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for name, (head, *_) in columns.items():
        # As texts: what looks like mark-up in a name is none.
        justify: JustifyMethod = "left" if name in LEFT_ALIGNED else "right"
        drawn.add_column(Text(head), justify=justify, no_wrap=name not in _WRAPPED, overflow="fold")
    rows = list(zip(*columns.values(), strict=True))
    for cells in rows[1:]:
        drawn.add_row(*map(Text, cells))
    return drawn


def _width(columns: dict[str, list[str]], *, is_wrapped: bool) -> int:
    """Characters that a table needs, at the least where its columns of words are wrapped."""
    total = 1
    for name, texts in columns.items():
        width = max(cell_len(line) for line in "\n".join(texts).split("\n"))
        if is_wrapped and name in _WRAPPED:
            width = min(width, _NARROWEST)
        total += width + 3
    return total


def _stacked(texts: Iterable[str]) -> list[str]:
    """A head and its cells, the intervals on further lines; the head no wider than the cells, as far as it can."""
    head, *cells = [text.replace(" [", "\n[") for text in texts]
    width = max([8, *(len(line) for cell in cells for line in cell.split("\n"))])
    lines = head.replace("_", "_\n").split("\n")
    return ["\n".join(textwrap.fill(line, width, break_long_words=False) for line in lines), *cells]
