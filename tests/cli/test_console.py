from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from rich.text import Text

from dmls_ray import load
from dmls_ray.analysis.summary import summarize
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.named_layouts import shown_columns, spare_heads
from dmls_ray.cli.console import Console, print_table
from tests.analysis.samples import results
from tests.conftest import PROJECT

HEADS = {"world_size", "batch_per_rank", "global_batch", "images/s [95%]", "speed-up [95%]", "test acc. [95%]", "n",
         "outcome"}  # fmt: skip
"""What no width may cost a reader."""
REFERENCE = PROJECT / "results" / "reference"

SPARE = spare_heads()


def table() -> Table:
    noise = [1.0, 1.02, 0.99]
    return make_table(
        results(
            {"batch_per_rank": [16, 32], "world_size": [1, 2]},
            lambda values, repeat: 100 * noise[repeat] * values["batch_per_rank"] * (1 + values["world_size"] / 2),
        )
    )


def printed(frame: pd.DataFrame, width: int, *, terminal: bool = True, **how: object) -> str:
    """What a reader has on a screen, or in a pipe."""
    out = io.StringIO()
    print_table(frame, Console(file=out, width=width, force_terminal=terminal), **how)  # type: ignore[arg-type]
    return Text.from_ansi(out.getvalue()).plain


@pytest.mark.parametrize("width", [20, 40, 80, 120, 160, 300])
def test_every_column_is_whole_or_named_at_every_width(width: int) -> None:
    frame = table().frame()
    text = printed(frame, width, spare=SPARE)
    body, _, hidden = text.partition("Not shown at this width: ")
    gone = hidden.partition(";")[0].split(", ") if hidden else []
    assert not HEADS & set(gone)
    assert set(gone) <= set(SPARE)
    for head in set(frame.columns) - set(gone):
        for cell in frame[head]:
            for part in cell.replace(" [", "|[").split("|"):
                assert part in body
    if width >= 120:
        assert max(map(len, body.splitlines())) <= width


def test_a_column_of_words_takes_several_lines_before_any_column_goes() -> None:
    question = "What does the batch do to the time, memory and accuracy of training?"
    frame = pd.DataFrame({"folder": ["results/batch_size"], "runs": ["12"], "question": [question]})
    text = printed(frame, 60)
    assert "results/batch_size" in text
    assert all(word in text for word in question.split())
    assert "question:" not in text
    assert max(map(len, text.splitlines())) <= 60


def test_in_a_pipe_a_table_is_as_wide_as_it_is_even_beyond_a_thousand_characters() -> None:
    frame = pd.DataFrame({f"column_{number}": ["x" * 30] for number in range(60)})
    text = printed(frame, 80, terminal=False)
    assert text.count("x" * 30) == 60
    assert len(max(text.splitlines(), key=len)) > 60 * 30


@pytest.mark.parametrize("folder", sorted(path.parent for path in REFERENCE.glob("**/runs.jsonl")), ids=str)
def test_the_default_table_of_every_committed_sweep_has_8_columns_and_fits_a_terminal(folder: Path) -> None:
    reading = summarize(load(folder))
    shown = shown_columns(reading.table)
    assert len(shown.columns) <= 8
    frame = reading.table.frame(shown.columns)
    for width in (100, 80):
        text = printed(frame, width, spare=shown.spare)
        table, _, hidden = text.partition("Not shown at this width: ")
        assert max(map(len, table.splitlines())) <= width
        gone = hidden.partition(";")[0].split(", ")
        # A page of 100 columns has the factors, what was learned and how fast.
        assert width < 100 or len(gone) <= 2


def test_a_head_takes_several_lines_before_a_table_is_wider_than_the_terminal() -> None:
    heads = [f"speed {name} [95% of all rows]" for name in "abcdefg"]
    text = printed(pd.DataFrame({head: ["1.50 [1.20, 1.80]"] for head in heads}), 110)
    assert ":" not in text
    assert text.count("[95% of all") == text.count("rows]") == 7
    assert max(map(len, text.splitlines())) <= 110
