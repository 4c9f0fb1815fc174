"""A table as CSV; of texts, as Markdown, as LaTeX, and as plain columns.

What stands in it may come from anybody, and goes on to programs that read more in it than text: a spreadsheet, a page
that renders Markdown, TeX, a terminal.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
from tabulate import tabulate

from dmls_ray.util.text import escape_control_chars

LEFT_ALIGNED = ("outcome", "verdict", "hardware", "differs in", "published on", "run", "reason", "folder", "question")
"""Columns of words, which begin at the left; numbers end at the right."""


def markdown(frame: pd.DataFrame) -> str:
    """A GitHub table."""
    # A bar would end the cell, and a line break the row.
    cells = frame.rename(columns=_in_cell).map(_in_cell)
    aligned = ["left" if head in LEFT_ALIGNED else "right" for head in frame.columns]
    return str(cells.to_markdown(index=False, disable_numparse=True, colalign=aligned if len(frame) else None))


def _in_cell(text: Any) -> str:
    return markdown_text(str(text).replace("|", "\\|"))


def markdown_text(text: str) -> str:
    """A line that Markdown shows as it is: no tag, no link and no picture, which would be fetched from elsewhere."""
    return " ".join(escape_control_chars(text).replace("<", "&lt;").replace("](", "]\\(").split())


def csv(frame: pd.DataFrame) -> str:
    """The frame as CSV: a text that a spreadsheet would read as a formula begins with an apostrophe.

    Numbers stay as they are. `runs.jsonl` and Parquet have each text as it was told.
    """
    texts = [place for place, kind in enumerate(frame.dtypes) if not pd.api.types.is_numeric_dtype(kind)]
    if texts:
        # By their places: two columns may have the same name. As objects, which are written as they are.
        columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
        for place in texts:
            columns[place] = pd.Series(map(_in_csv, columns[place]), index=frame.index, dtype=object)
        frame = pd.concat(columns, axis=1, keys=frame.columns)
    return str(frame.rename(columns=_in_csv).to_csv(index=False))


_NUMBER = re.compile(r"[+-][0-9.,eE%x\s\[\]+-]*")
"""A number with its sign, maybe with its interval; it calls no function and names no other program."""


def _in_csv(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = escape_control_chars(value)
    is_formula = text.startswith(("=", "@", "+", "-", "\t")) and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def plain_columns(frame: pd.DataFrame) -> str:
    """Columns under their heads, as wide as they are."""
    return tabulate(
        frame.to_dict("list"), headers="keys", tablefmt="simple", disable_numparse=True,
        colalign=["left" if head in LEFT_ALIGNED else "right" for head in frame.columns],
    )  # fmt: skip


def latex(frame: pd.DataFrame) -> str:
    """A tabular with booktabs' rules; what TeX would read in a cell stands for itself."""
    layout = "".join("l" if head in LEFT_ALIGNED else "r" for head in frame.columns)
    styled = frame.rename(columns=_escaped).map(lambda text: _escaped(str(text))).style.hide(axis="index")
    return str(styled.to_latex(column_format=layout, hrules=True))


def latex_comment(text: str) -> str:
    """A text that TeX does not read, however many lines it has."""
    return "\n".join(f"% {line}".rstrip() for line in escape_control_chars(text).splitlines()) or "%"


_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}  # fmt: skip


def _escaped(text: str) -> str:
    # An empty line would end a paragraph, within a cell.
    written = "".join(_SPECIAL.get(mark, mark) for mark in " ".join(escape_control_chars(text).split()))
    # After the end of a row or a rule, TeX takes these for its options.
    return f"{{{written[0]}}}{written[1:]}" if written.startswith(("[", "*")) else written
