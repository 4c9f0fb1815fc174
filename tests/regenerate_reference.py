"""Write the tables and answers of results/ again: `python -m tests.regenerate_reference`.

Run it after a sentence, a label or a note was reworded, and look over the difference before you commit it.
"""

from __future__ import annotations

from dmls_ray import load
from dmls_ray.analysis.export.text_tables import answer_markdown, table_markdown
from dmls_ray.analysis.summary import summarize
from tests.conftest import PROJECT


def regenerate() -> None:
    """Write the table of every folder of results."""
    for path in sorted((PROJECT / "results").glob("*/**/runs.jsonl")):
        summary = summarize(load(path.parent))
        (path.parent / "table.md").write_text(f"{table_markdown(summary.table)}\n{answer_markdown(summary.answer)}\n")


if __name__ == "__main__":
    regenerate()
