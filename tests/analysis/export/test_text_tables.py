from __future__ import annotations

import pandas as pd
import pytest

from dmls_ray.analysis.export.text_tables import latex, markdown

FRAME = pd.DataFrame(
    {"batch_per_rank": ["16"], "images/s [95%]": ["1,616 [1,576, 1,657]"], "outcome": ["2 ok | 50% & {x}"]}
)


def test_markdown_keeps_a_cell_in_its_cell() -> None:
    assert markdown(FRAME).splitlines()[2] == r"|             16 | 1,616 [1,576, 1,657] | 2 ok \| 50% & {x} |"


def test_latex_has_rules_and_what_is_special_stands_for_itself() -> None:
    text = latex(FRAME)
    assert r"\begin{tabular}{rrl}" in text
    assert r"\toprule" in text
    assert r"16 & 1,616 [1,576, 1,657] & 2 ok \textbar{} 50\% \& \{x\} \\" in text
    assert r"batch\_per\_rank & images/s [95\%] & outcome" in text


def test_a_table_of_latex_has_its_first_note_as_caption_and_the_others_below() -> None:
    lines = latex(FRAME, ["Held fixed: lr 10%.", "", "Mean of n repeats."]).splitlines()
    assert lines[:3] == [r"\begin{table}", r"\centering", r"\caption{Held fixed: lr 10\%.}"]
    assert lines[-2:] == [r"\par\footnotesize Mean of n repeats.", r"\end{table}"]
    assert lines[3:-2] == latex(FRAME).rstrip().splitlines()


@pytest.mark.parametrize(
    ("cell", "written"),
    [("[a]", r"{[}a]"), ("*", r"{*}"), ("a\n\n[b]", "a [b]"), ("<a>", r"\textless{}a\textgreater{}"), ("", "")],
)
def test_a_first_cell_of_latex_is_never_an_option_of_the_rule_before_it(cell: str, written: str) -> None:
    rows = latex(pd.DataFrame({"kind": [cell, cell], "n": ["1", "2"]})).splitlines()
    assert rows[4:6] == [f"{written} & 1 " + r"\\", f"{written} & 2 " + r"\\"]
