"""Tables and sentences on the console: as wide as they are in a pipe, as wide as there is room in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from dmls_ray.analysis.written import LEFT, plain

if TYPE_CHECKING:
    import pandas as pd

SPARE = ("train acc.", "s/run", "exposed comm. ms", "efficiency", "peak MiB", "s/epoch")
"""Columns of a sweep's table that answer least, in the order in which they go where there is no room."""


MOST_DRAWN = 1000
"""Rows of a table that are drawn to fit the terminal; to fit tens of thousands takes half a minute."""


def say(console: Console, text: str, style: str | None = None) -> None:
    """A line as it is: no mark-up in it is read, and none of it is cut."""
    console.print(text, style=style, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_table(frame: pd.DataFrame, console: Console, *, spare: Sequence[str] = ()) -> None:
    """A table of texts as wide as it is in a pipe; in a terminal that is too narrow, without what it can spare.

    Args:
        frame: the texts.
        console: where to.
        spare: heads of columns that may be left out, the first first.
    """
    if len(frame) > MOST_DRAWN:
        print(plain(frame))
        return
    from rich.measure import Measurement

    def width(drawn: Any) -> int:
        return Measurement.get(console, console.options.update(max_width=1000), drawn).maximum

    hidden: list[str] = []
    drawn = _rich_table(frame, hidden)
    if not console.is_terminal:
        console.width = max(console.width, width(drawn))
    for head in (head for head in spare if head in frame.columns):
        if width(drawn) <= console.width:
            break
        hidden.append(head)
        drawn = _rich_table(frame, hidden, stacked=True)
    console.print(drawn)
    if hidden:
        say(console, f"In table.md, too: {', '.join(hidden)}.", style="dim")


def _rich_table(frame: pd.DataFrame, hidden: Sequence[str], *, stacked: bool = False) -> Any:
    """The table for the terminal; stacked: heads and intervals take a line of their own."""
    from rich import box
    from rich.table import Table

    frame = frame.drop(columns=list(hidden))
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for head in frame.columns:
        text = head.replace("_", "_\n", head.count("_")).replace(" [", "\n[") if stacked else head
        drawn.add_column(Text(text), justify="left" if head in LEFT else "right", no_wrap=True)
    for cells in frame.itertuples(index=False):
        # As texts: what looks like mark-up in a name is none.
        drawn.add_row(*(Text(cell.replace(" [", "\n[") if stacked else cell) for cell in cells))
    return drawn
