"""Write the tables and sentences of results/ again: `python -m tests.regenerate_reference`.

Run it after a sentence, a label or a note was reworded, and look over the difference before you commit it.
"""

from __future__ import annotations

import contextlib
import io

from dmls_ray import load
from dmls_ray.analysis.export.text_tables import answer_markdown, table_markdown
from dmls_ray.analysis.summary import summarize
from dmls_ray.cli.main import main
from tests.conftest import PROJECT


def output_of(*arguments: str) -> str:
    """Return what a command prints."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main([*arguments])
    return shown.getvalue()


def regenerate() -> None:
    """Write every reference table, the table next to the published times, and the published tables."""
    for path in sorted((PROJECT / "results" / "reference").glob("**/runs.jsonl")):
        summary = summarize(load(path.parent))
        (path.parent / "table.md").write_text(f"{table_markdown(summary.table)}\n{answer_markdown(summary.answer)}\n")
    grayscale = PROJECT / "results" / "reference" / "grayscale"
    (grayscale / "published.md").write_text(output_of("table", str(grayscale), "--published", "--format", "markdown"))
    tables = PROJECT / "results" / "published" / "tables.md"
    head = tables.read_text().splitlines()[:3]
    lines = output_of("published", "--format", "markdown").splitlines()
    titled = [f"## {line}" if line.startswith("Report ") and ", by " in line else line for line in lines]
    tables.write_text("\n".join([*head, *titled]) + "\n")


if __name__ == "__main__":
    regenerate()
