from __future__ import annotations

from collections.abc import Sequence

import pytest

from dmls_ray.records.names import distinct_names


@pytest.mark.parametrize(
    ("names", "taken", "columns"),
    [
        (["a", "b"], [], ["a", "b"]),
        (["a", "b"], ["b"], ["a", "x_b"]),
        (["a", "x_a"], ["a"], ["x_x_a", "x_a"]),
        (["x_a", "a"], ["a"], ["x_a", "x_x_a"]),
        (["a"], ["a", "x_a"], ["x_x_a"]),
        (["A", "a"], ["a"], ["A", "x_a"]),
    ],
)
def test_a_name_that_is_taken_gets_a_prefix_and_no_two_are_equal(
    names: Sequence[str], taken: Sequence[str], columns: Sequence[str]
) -> None:
    assert distinct_names(names, taken, "x_") == dict(zip(names, columns, strict=True))
