"""A table of texts as Markdown, as LaTeX, and as plain columns."""

from __future__ import annotations

import pandas as pd
from tabulate import tabulate

LEFT = ("outcome", "verdict", "hardware", "differs in", "published on", "run", "reason")
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
    """A tabular with booktabs' rules."""
    layout = "".join("l" if head in LEFT else "r" for head in frame.columns)
    styled = frame.rename(columns=_escaped).map(lambda text: _escaped(str(text))).style.hide(axis="index")
    return str(styled.to_latex(column_format=layout, hrules=True))


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    mark: f"\\{mark}" for mark in "&%$#_{}"
}


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(mark, mark) for mark in text)
