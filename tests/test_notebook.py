"""The notebook of the examples, run by a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from dmls_ray import load
from tests.conftest import PROJECT


@pytest.mark.slow
def test_the_notebook_runs_and_shows_the_answer_the_table_and_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(PROJECT / "examples" / "notebook.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    swept, shown, frame, best, epochs, figure = (cell.outputs for cell in cells[2:])

    printed = "".join(output["data"]["text/plain"] for output in swept)
    results = load(tmp_path / "results" / "notebook")
    answer = results.summary.answer
    assert answer.headline.split(":")[0] in printed.replace("\n", " ")
    html = _data(shown, "text/html")
    assert answer.headline.split(":")[0] in html
    assert html.count("<tr") == 1 + len(results)
    assert all(name in _data(frame, "text/html") for name in ("batch", "samples_per_s_low"))
    assert "width" in _data(best, "text/plain")
    assert "batch" in _data(epochs, "text/plain")
    assert _data(figure, "image/svg+xml").startswith("<svg")


def _data(outputs: list[Any], form: str) -> str:
    """What a cell has shown, in one of its forms."""
    return str(outputs[-1]["data"][form])
