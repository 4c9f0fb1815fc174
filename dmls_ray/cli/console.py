"""Tables and sentences on the console: full width in a pipe, fitted to the width of a terminal."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich import console as rich_console
from rich.text import Text

from dmls_ray.analysis.export.text_tables import LEFT_ALIGNED, plain_columns
from dmls_ray.util.text import escape_control_chars

if TYPE_CHECKING:
    import pandas as pd

    from dmls_ray.analysis.table.findings_table import AnswerTable

MOST_DRAWN = 1000
"""Rows of a table that are drawn to fit the terminal; to fit tens of thousands takes half a minute."""

_WRAPPED = ("hardware", "question", "outcome", "differs in", "published on", "reason")
"""Columns of words, which may take several lines."""
_NARROWEST = 16
"""Characters that such a column keeps of its width."""
_WIDEST_ANSWER = 100
"""Characters of a line of an answer: longer ones are hard to read."""
_JUSTIFIED: dict[bool, Literal["left", "right"]] = {True: "left", False: "right"}
"""Whether a column is of words -> how it is aligned."""
_WIDEST = 1_000_000
"""More than any table has; narrower ones would be cut to it when they are measured."""


class Console(rich_console.Console):
    """Where tables go. A reader that has read enough (`| head`) raises, and does not end the program with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


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


def print_table(frame: pd.DataFrame, console: rich_console.Console, *, spare: Sequence[str] = ()) -> None:
    """A table of texts as wide as it is in a pipe; in a terminal none of its columns is cut.

    If the terminal is too narrow, words take several lines, then heads and intervals separate lines, then columns go
    that it can spare, and are named. What is too wide even so is broken by the terminal.

    Args:
        frame: the texts.
        console: where to.
        spare: heads of columns that may be left out, the first first.
    """
    frame = frame.rename(columns=escape_control_chars).map(escape_control_chars)
    if len(frame) > MOST_DRAWN:
        try:
            print(plain_columns(frame), flush=True)
        except BrokenPipeError:
            console.on_broken_pipe()
        return
    is_stacked = console.is_terminal and _least_width(frame, console) > console.width
    droppable = [head for head in spare if head in frame.columns]
    hidden: list[str] = []
    while is_stacked and droppable and _least_width(frame, console, stacked=True) > console.width:
        hidden.append(droppable.pop(0))
        frame = frame.drop(columns=hidden[-1])
    drawn = _rich_table(frame, stacked=is_stacked)
    needed = _least_width(frame, console, stacked=is_stacked) if console.is_terminal else _width(drawn, console)
    console.width = max(console.width, needed)
    console.print(drawn)
    if hidden:
        names = ", ".join(hidden)
        say(console, f"Not shown in this width: {names}; a wider terminal, or --format csv, has them.", "dim")


def _width(drawn: Any, console: rich_console.Console) -> int:
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(max_width=_WIDEST), drawn).maximum


def _least_width(frame: pd.DataFrame, console: rich_console.Console, *, stacked: bool = False) -> int:
    """What a table needs at the least where its columns of words are wrapped."""
    short = frame.copy(deep=False)
    for head in _WRAPPED:
        if head in short.columns:
            short[head] = [cell[:_NARROWEST] for cell in short[head]]
    return _width(_rich_table(short, stacked=stacked), console)


def _rich_table(frame: pd.DataFrame, *, stacked: bool = False) -> Any:
    """The table for the terminal, whose columns of words take as many lines as they need.

    Args:
        frame: the texts.
        stacked: whether heads and intervals take separate lines.
    """
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for head in frame.columns:
        text = _stacked(head, frame[head]) if stacked else head
        justify = _JUSTIFIED[head in LEFT_ALIGNED]
        drawn.add_column(Text(text), justify=justify, no_wrap=head not in _WRAPPED, overflow="fold")
    if stacked:
        frame = frame.map(_in_lines)
    for cells in frame.itertuples(index=False):
        drawn.add_row(*map(Text, cells))  # as texts: what looks like mark-up in a name is none
    return drawn


def _in_lines(cell: str) -> str:
    """A value, and its interval on a further line."""
    return cell.replace(" [", "\n[")


def _stacked(head: str, cells: Iterable[str]) -> str:
    """A head in lines no wider than its cells, as far as it has places to break at."""
    parts = [line for cell in cells for line in _in_lines(cell).splitlines()]
    width = max(map(len, parts), default=0)
    lines = _in_lines(head.replace("_", "_\n")).splitlines()
    return "\n".join(textwrap.fill(line, max(width, 8), break_long_words=False) for line in lines)
