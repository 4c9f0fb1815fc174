"""A table as CSV, Markdown, LaTeX or plain columns.

The texts may be untrusted, and the programs that read them interpret more than text: spreadsheets, Markdown renderers,
TeX, terminals. So each format escapes what its programs would interpret.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
from tabulate import tabulate

from dmls_ray.util.text import escape_control_chars

LEFT_ALIGNED = ("outcome", "verdict", "hardware", "differs in", "published on", "run", "reason", "folder", "question")
"""Columns of words, aligned left; numbers are aligned right."""


def markdown(frame: pd.DataFrame) -> str:
    """A GitHub table."""
    # A vertical bar would end the cell, a line break the row.
    cells = frame.rename(columns=_in_cell).map(_in_cell)
    aligned = ["left" if head in LEFT_ALIGNED else "right" for head in frame.columns]
    return str(cells.to_markdown(index=False, disable_numparse=True, colalign=aligned if len(frame) else None))


def _in_cell(text: Any) -> str:
    return markdown_text(str(text).replace("|", "\\|"))


def markdown_text(text: str) -> str:
    """A line that Markdown shows literally: no tag, no link and no picture, which would be fetched from a server."""
    return " ".join(escape_control_chars(text).replace("<", "&lt;").replace("](", "]\\(").split())


def csv(frame: pd.DataFrame) -> str:
    """The frame as CSV; a text that a spreadsheet would read as a formula gets a leading apostrophe.

    `runs.jsonl` and Parquet have the original texts.
    """
    texts = [place for place, kind in enumerate(frame.dtypes) if not pd.api.types.is_numeric_dtype(kind)]
    if texts:
        # By position, since two columns may have the same name. As objects, which are written unchanged.
        columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
        for place in texts:
            columns[place] = pd.Series(map(_in_csv, columns[place]), index=frame.index, dtype=object)
        frame = pd.concat(columns, axis=1, keys=frame.columns)
    return str(frame.rename(columns=_in_csv).to_csv(index=False))


_NUMBER = re.compile(r"[+-][0-9.,eE%x\s\[\]+-]*")
"""A signed number, optionally with its interval, which no spreadsheet evaluates as a formula with a function."""


def _in_csv(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = escape_control_chars(value)
    is_formula = text.startswith(("=", "@", "+", "-", "\t")) and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def plain_columns(frame: pd.DataFrame) -> str:
    """Columns under their headings."""
    return tabulate(
        frame.to_dict("list"), headers="keys", tablefmt="simple", disable_numparse=True,
        colalign=["left" if head in LEFT_ALIGNED else "right" for head in frame.columns],
    )  # fmt: skip


def latex(frame: pd.DataFrame) -> str:
    """A tabular with the rules of booktabs; the text of cells is escaped for TeX."""
    layout = "".join("l" if head in LEFT_ALIGNED else "r" for head in frame.columns)
    styled = frame.rename(columns=_escaped).map(lambda text: _escaped(str(text))).style.hide(axis="index")
    return str(styled.to_latex(column_format=layout, hrules=True))


def latex_comment(text: str) -> str:
    """A text of any number of lines as a TeX comment."""
    return "\n".join(f"% {line}".rstrip() for line in escape_control_chars(text).splitlines()) or "%"


_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}  # fmt: skip


def _escaped(text: str) -> str:
    # An empty line would end a paragraph, within a cell.
    written = "".join(_SPECIAL.get(mark, mark) for mark in " ".join(escape_control_chars(text).split()))
    # After the end of a row or a rule, TeX would read these as options.
    return f"{{{written[0]}}}{written[1:]}" if written.startswith(("[", "*")) else written
