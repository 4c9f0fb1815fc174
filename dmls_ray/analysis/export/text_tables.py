"""A table as CSV, Markdown, LaTeX or plain columns.

The texts may be untrusted, and Markdown renderers, TeX and terminals interpret more than text. So each of these formats
escapes what its programs would interpret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dmls_ray.analysis.summary import AnswerTable
from dmls_ray.analysis.table.model import Column, Table
from dmls_ray.util.text import escape_control_chars

if TYPE_CHECKING:
    import pandas as pd

LEFT_ALIGNED = (
    "outcome", "compared", "where", "verdict", "hardware", "run", "reason", "folder", "question",
)  # fmt: skip
"""Columns of words, aligned left; numbers are aligned right."""


Cells = Mapping[str, Iterable[Any]]
"""Heads of columns -> their cells."""


def markdown(frame: Cells | pd.DataFrame) -> str:
    """A GitHub table."""
    # A vertical bar would end the cell, a line break the row.
    columns = {_in_cell(head): [_in_cell(value) for value in values] for head, values in frame.items()}
    head, *rows = _aligned(columns)
    rules = []
    for name, text in zip(columns, head, strict=True):
        rule = "-" * (len(text) + 1)
        rules.append(f":{rule}" if name in LEFT_ALIGNED else f"{rule}:")
    return "\n".join([_row(head), f"|{'|'.join(rules)}|", *(_row(row) for row in rows)])


def table_markdown(table: Table, columns: Sequence[Column] | None = None) -> str:
    """The table of a sweep, of some columns or of all, and its notes."""
    notes = "\n".join(f"- {markdown_text(note)}" for note in table.notes)
    return f"{markdown(table.cells(columns))}\n\n{notes}\n"


def answer_markdown(answer: AnswerTable) -> str:
    """The answer of a sweep: the headline in bold, the effects as tables."""
    parts = [f"**{markdown_text(answer.headline)}**"]
    parts += [markdown_text(sentence) for sentence in answer.sentences]
    parts += [markdown(cells) for cells in answer.tables]
    parts += [markdown_text(text) for text in (answer.left_out, answer.undecided) if text]
    return "\n\n".join(parts)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _aligned(cells: Cells | pd.DataFrame) -> list[tuple[str, ...]]:
    """The headings and the rows, each column padded to one width."""
    columns = []
    for head, values in cells.items():
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


def csv(cells: Cells | pd.DataFrame) -> str:
    """The table as CSV. `runs.jsonl` and Parquet have texts with their control characters."""
    return str(_frame(cells).rename(columns=_in_csv).map(_in_csv).to_csv(index=False))


def _frame(cells: Cells | pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(cells)


def _in_csv(value: Any) -> Any:
    return escape_control_chars(value) if isinstance(value, str) else value


def plain_columns(cells: Cells | pd.DataFrame) -> str:
    """Columns under their headings."""
    head, *rows = _aligned(cells)
    rule = ["-" * len(text) for text in head]
    return "\n".join("  ".join(line) for line in (head, rule, *rows))


def latex(cells: Cells | pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """A tabular with the rules of booktabs; all text is escaped for TeX.

    With notes it is a table, whose caption is the first of them; the others stand below.
    """
    layout = "".join("l" if head in LEFT_ALIGNED else "r" for head in cells)
    styled = _frame(cells).rename(columns=_escaped).map(lambda text: _escaped(str(text))).style.hide(axis="index")
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
