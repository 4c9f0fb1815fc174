"""What is seen of batches and of inputs of models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from dmls_ray.training.observed.contents import content_of, digest_of, has_rows_twice


@dataclass
class Batch:
    x: torch.Tensor
    name: str = "a batch"


@pytest.mark.parametrize(
    ("value", "shapes", "lengths"),
    [
        (torch.ones(4, 2), [(4, 2)], []),
        ([torch.ones(4, 2), torch.ones(4)], [(4, 2), (4,)], [2]),
        ({"x": torch.ones(3, 2), "of": {"y": torch.ones(3)}}, [(3, 2), (3,)], []),
        ([{"x": torch.ones(2)}] * 5, [(2,)] * 5, [5]),
        (Batch(torch.ones(7, 2)), [(7, 2)], []),
        (np.ones((6, 2)), [(6, 2)], []),
        (["a", "b", 3, None], [], [4]),
        (None, [], []),
    ],
)
def test_tensors_are_found_in_lists_mappings_and_objects(
    value: object, shapes: list[tuple[int, ...]], lengths: list[int]
) -> None:
    content = content_of(value)
    assert [leaf.shape for leaf in content.leaves] == shapes
    assert content.lengths == lengths


def test_few_tensors_of_a_long_list_are_looked_at_and_its_length_is_known() -> None:
    content = content_of([torch.ones(3)] * 1000)
    assert len(content.leaves) == 8
    assert content.lengths == [1000]


def test_a_list_that_has_itself_is_looked_at_to_an_end() -> None:
    items: list[object] = []
    items.append(items)
    assert content_of(items).leaves == []


def test_digests_are_equal_for_equal_tensors_alone() -> None:
    first = torch.randn(64, 1000)
    other = first.clone()
    assert digest_of([first]) == digest_of([other])
    other[17] += 1
    assert digest_of([first]) != digest_of([other])
    assert digest_of([torch.tensor([1, 2])]) != digest_of([torch.tensor([2, 1])])
    assert digest_of([]) == 0


def test_rows_that_come_twice_are_seen_where_rows_differ() -> None:
    rows = torch.randn(6, 3)
    assert has_rows_twice(torch.cat([rows, rows]))
    assert has_rows_twice(rows.repeat_interleave(2, dim=0))
    assert not has_rows_twice(rows)
    assert not has_rows_twice(torch.cat([rows, rows + 1]))
    assert not has_rows_twice(torch.ones(12, 3))
    assert not has_rows_twice(torch.arange(12))
