"""A table as CSV, Markdown, LaTeX or plain columns.

The texts may be untrusted, and Markdown renderers, TeX and terminals interpret more than text. So each of these formats
escapes what its programs would interpret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from dmls_ray.analysis.summary import AnswerTable
from dmls_ray.analysis.table.model import Column, Table
from dmls_ray.util.text import escape_control_chars

LEFT_ALIGNED = (
    "outcome", "compared", "where", "verdict", "hardware", "run", "reason", "folder", "question",
)  # fmt: skip
"""Columns of words, aligned left; numbers are aligned right."""


def markdown(frame: pd.DataFrame) -> str:
    """A GitHub table."""
    # A vertical bar would end the cell, a line break the row.
    head, *rows = _aligned(frame.rename(columns=_in_cell).map(_in_cell))
    rules = []
    for name, text in zip(frame.columns, head, strict=True):
        rule = "-" * (len(text) + 1)
        rules.append(f":{rule}" if name in LEFT_ALIGNED else f"{rule}:")
    return "\n".join([_row(head), f"|{'|'.join(rules)}|", *(_row(row) for row in rows)])


def table_markdown(table: Table, columns: Sequence[Column] | None = None) -> str:
    """The table of a sweep, of some columns or of all, and its notes."""
    notes = "\n".join(f"- {markdown_text(note)}" for note in table.notes)
    return f"{markdown(table.frame(columns))}\n\n{notes}\n"


def answer_markdown(answer: AnswerTable) -> str:
    """The answer of a sweep: the headline in bold, the effects as tables."""
    parts = [f"**{markdown_text(answer.headline)}**"]
    parts += [markdown_text(sentence) for sentence in answer.sentences]
    parts += [markdown(frame) for frame in answer.frames]
    parts += [markdown_text(text) for text in (answer.left_out, answer.undecided) if text]
    return "\n\n".join(parts)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _aligned(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """The headings and the rows, each column padded to one width."""
    columns = []
    for head, values in frame.items():
        texts = [str(head), *(str(value) for value in values)]
        side = "<" if head in LEFT_ALIGNED else ">"
        width = len(max(texts, key=len))
        columns.append([f"{text:{side}{width}}" for text in texts])
    return list(zip(*columns, strict=True))


def _in_cell(text: Any) -> str:
    return markdown_text(str(text).replace("|", "\\|"))


def markdown_text(text: str) -> str:
    """A line that Markdown shows literally: no tag, no link and no picture, which would be fetched from a server."""
    return " ".join(escape_control_chars(text).replace("<", "&lt;").replace("](", "]\\(").split())


def csv(frame: pd.DataFrame) -> str:
    """The frame as CSV. `runs.jsonl` and Parquet have texts with their control characters."""
    return str(frame.rename(columns=_in_csv).map(_in_csv).to_csv(index=False))


def _in_csv(value: Any) -> Any:
    return escape_control_chars(value) if isinstance(value, str) else value


def plain_columns(frame: pd.DataFrame) -> str:
    """Columns under their headings."""
    head, *rows = _aligned(frame)
    rule = ["-" * len(text) for text in head]
    return "\n".join("  ".join(cells) for cells in (head, rule, *rows))


def latex(frame: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """A tabular with the rules of booktabs; all text is escaped for TeX.

    With notes it is a table, whose caption is the first of them; the others stand below.
    """
    layout = "".join("l" if head in LEFT_ALIGNED else "r" for head in frame.columns)
    styled = frame.rename(columns=_escaped).map(lambda text: _escaped(str(text))).style.hide(axis="index")
    tabular = str(styled.to_latex(column_format=layout, hrules=True))
    texts = [_escaped(note) for note in notes if note]
    if not texts:
        return tabular
    caption, *below = texts
    lines = ["\\begin{table}", "\\centering", f"\\caption{{{caption}}}", tabular.rstrip()]
    lines += [f"\\par\\footnotesize {text}" for text in below]
    return "\n".join([*lines, "\\end{table}", ""])


_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}  # fmt: skip


def _escaped(text: str) -> str:
    # An empty line would end a paragraph, within a cell.
    written = "".join(_SPECIAL.get(mark, mark) for mark in " ".join(escape_control_chars(text).split()))
    if not written.startswith(("[", "*")):
        return written
    # After the end of a row or a rule, TeX would read these as options.
    return f"{{{written[0]}}}{written[1:]}"
