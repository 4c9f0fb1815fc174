"""A table of texts as Markdown, as LaTeX, and as plain columns."""

from __future__ import annotations

import pandas as pd
from tabulate import tabulate

LEFT = ("outcome", "verdict", "hardware", "differs in", "published on", "run", "reason", "folder", "question")
"""Columns of words, which begin at the left; numbers end at the right."""


def markdown(frame: pd.DataFrame) -> str:
    """A GitHub table."""
    # A bar would end the cell, and a line break the row.
    cells = frame.map(lambda text: " ".join(str(text).replace("|", "\\|").split()))
    aligned = ["left" if head in LEFT else "right" for head in frame.columns]
    return str(cells.to_markdown(index=False, disable_numparse=True, colalign=aligned if len(frame) else None))


def plain(frame: pd.DataFrame) -> str:
    """Columns under their heads, as wide as they are."""
    return tabulate(
        frame.to_dict("list"), headers="keys", tablefmt="simple", disable_numparse=True,
        colalign=["left" if head in LEFT else "right" for head in frame.columns],
    )  # fmt: skip


def latex(frame: pd.DataFrame) -> str:
    """A tabular with booktabs' rules; what TeX would read in a cell stands for itself."""
    layout = "".join("l" if head in LEFT else "r" for head in frame.columns)
    styled = frame.rename(columns=_escaped).map(lambda text: _escaped(str(text))).style.hide(axis="index")
    return str(styled.to_latex(column_format=layout, hrules=True))


def latex_comment(text: str) -> str:
    """A text that TeX does not read, however many lines it has."""
    return "\n".join(f"% {line}".rstrip() for line in text.splitlines()) or "%"


_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}  # fmt: skip


def _escaped(text: str) -> str:
    # An empty line would end a paragraph, within a cell.
    written = "".join(_SPECIAL.get(mark, mark) for mark in " ".join(text.split()))
    # After the end of a row or a rule, TeX takes these for its options.
    return f"{{{written[0]}}}{written[1:]}" if written.startswith(("[", "*")) else written
