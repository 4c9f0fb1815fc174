from __future__ import annotations

import pandas as pd

from dmls_ray.analysis.written import latex, markdown

FRAME = pd.DataFrame(
    {"batch_per_rank": ["16"], "images/s [95%]": ["1,616 [1,576, 1,657]"], "outcome": ["2 ok | 50% & {x}"]}
)


def test_markdown_keeps_a_cell_in_its_cell() -> None:
    assert markdown(FRAME).splitlines()[2] == r"|               16 | 1,616 [1,576, 1,657] | 2 ok \| 50% & {x} |"


def test_latex_has_rules_and_what_is_special_stands_for_itself() -> None:
    text = latex(FRAME)
    assert r"\begin{tabular}{rrl}" in text
    assert r"\toprule" in text
    assert r"16 & 1,616 [1,576, 1,657] & 2 ok | 50\% \& \{x\} \\" in text
    assert r"batch\_per\_rank & images/s [95\%] & outcome" in text
