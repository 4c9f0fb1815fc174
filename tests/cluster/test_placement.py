from __future__ import annotations

import pytest

from dmls_ray.cluster.placement import RankRequest, place_ranks, ranks_to_hold, slots_for
from dmls_ray.workloads.classification.config import TrialConfig

ROOMS = {"large": 4, "small": 2, "tiny": 1}


@pytest.mark.parametrize(
    ("rooms", "need", "expected"),
    [
        # The first machine that has room is taken though another one has more, or else as few as it takes.
        ({"first": 2, "larger": 8}, {"world_size": 2}, {"first": 2}),
        (ROOMS, {"world_size": 4}, {"large": 4}),
        (ROOMS, {"world_size": 5}, {"large": 4, "small": 1}),
        (ROOMS, {"world_size": 7}, {"large": 4, "small": 2, "tiny": 1}),
        (ROOMS, {"world_size": 8}, {}),
        # As many machines as were asked for have their share, or none has.
        (ROOMS, {"world_size": 4, "machines": 2}, {"large": 2, "small": 2}),
        (ROOMS, {"world_size": 3, "machines": 1}, {"large": 3}),
        (ROOMS, {"world_size": 3, "machines": 3}, {"large": 1, "small": 1, "tiny": 1}),
        (ROOMS, {"world_size": 6, "machines": 2}, {}),
        (ROOMS, {"world_size": 4, "machines": 4}, {}),
    ],
)
def test_where_ranks_are_placed(rooms: dict[str, int], need: dict[str, int], expected: dict[str, int]) -> None:
    assert place_ranks(rooms, RankRequest(**need)) == expected


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        ({"world_size": 9}, {"large": 6, "small": 3}),
        ({"world_size": 12, "machines": 2}, {"large": 6, "small": 6}),
        ({"world_size": 3}, {"large": 3}),
    ],
)
def test_more_ranks_than_cores_are_shared_out_by_cores_where_that_is_allowed(
    need: dict[str, int], expected: dict[str, int]
) -> None:
    request = RankRequest(**need)
    slots = slots_for({"none": 0, "large": 4, "small": 2}, request, oversubscribe=True)
    assert place_ranks(slots, request) == expected


def test_a_rank_of_several_threads_takes_so_many_cores_of_one_machine() -> None:
    need = RankRequest(world_size=3, threads=2)
    assert slots_for({"a": 5, "b": 3}, need, oversubscribe=False) == {"a": 2, "b": 1}
    assert not place_ranks(slots_for({"a": 3, "b": 3}, need, oversubscribe=False), need)


def test_a_sweep_holds_what_its_largest_run_needs_of_each_machine_and_no_more() -> None:
    cores = {"a": 4, "b": 4, "c": 4}
    packed = [RankRequest(world_size=size) for size in (1, 2)]
    assert ranks_to_hold(cores, packed, oversubscribe=False) == {"a": 2}
    assert ranks_to_hold(cores, [*packed, RankRequest(world_size=2, machines=2)], oversubscribe=False) == {
        "a": 2,
        "b": 1,
    }
    assert ranks_to_hold(cores, [RankRequest(world_size=6)], oversubscribe=False) == {"a": 4, "b": 2}
    assert ranks_to_hold(cores, [RankRequest(world_size=13)], oversubscribe=False) == {}


def test_each_run_finds_its_ranks_among_those_that_are_held() -> None:
    cores = {"a": 3, "b": 5, "c": 4}
    needs = [RankRequest(world_size=size) for size in range(1, 13)]
    needs += [
        RankRequest(world_size=machines * each, machines=machines) for machines in (1, 2, 3) for each in (1, 2, 3)
    ]
    for count in range(1, len(needs) + 1):
        held = ranks_to_hold(cores, needs[:count], oversubscribe=False)
        assert all(place_ranks(held, need) for need in needs[:count])


def test_a_request_is_described_as_it_was_made() -> None:
    assert str(RankRequest.of(TrialConfig(batch_per_rank=1, world_size=3))) == "world_size=3"
    spread = TrialConfig(batch_per_rank=1, machines=2, ranks_per_machine=3)
    assert str(RankRequest.of(spread)) == "machines=2 ranks_per_machine=3"
