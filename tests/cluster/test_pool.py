from __future__ import annotations

import pytest

from dmls_ray.cluster.pool import shares
from dmls_ray.cluster.resources import Machine, Resources

SMALL, LARGE = Machine("small", "1", 2, 1), Machine("large", "2", 4, 4)
BOTH = Resources((SMALL, LARGE))


@pytest.mark.parametrize(
    ("ranks", "device", "expected"),
    [
        (1, "cpu", {"large": 1}),
        (4, "cpu", {"large": 4}),
        (6, "cpu", {"large": 4, "small": 2}),
        (9, "cpu", {"large": 6, "small": 3}),
        (5, "cuda", {"large": 4, "small": 1}),
    ],
)
def test_ranks_go_over_as_few_machines_as_it_takes(ranks: int, device: str, expected: dict[str, int]) -> None:
    assert {share.machine.name: share.ranks for share in shares(BOTH, ranks, device)} == expected


def test_a_machine_that_offers_no_cores_holds_no_rank_however_many_there_are() -> None:
    head = Machine("head", "3", 0, 0)
    assert {share.machine.name: share.ranks for share in shares(Resources((head, SMALL)), 5, "cpu")} == {"small": 5}
