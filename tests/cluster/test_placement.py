from __future__ import annotations

import pytest

from dmls_ray.cluster.placement import RankRequest, place_ranks, ranks_to_hold, slots_for
from dmls_ray.workloads.classification.config import TrialConfig

ROOMS = {"large": 4, "small": 2, "tiny": 1}


@pytest.mark.parametrize(
    ("world_size", "expected"),
    [
        (1, {"large": 1}),
        (4, {"large": 4}),
        (5, {"large": 4, "small": 1}),
        (7, {"large": 4, "small": 2, "tiny": 1}),
        (8, {}),
    ],
)
def test_ranks_go_on_the_first_machine_that_has_room_or_else_on_as_few_as_it_takes(
    world_size: int, expected: dict[str, int]
) -> None:
    assert place_ranks(ROOMS, RankRequest(world_size=world_size)) == expected


def test_the_machine_to_be_preferred_is_taken_though_another_has_more_room() -> None:
    assert place_ranks({"first": 2, "larger": 8}, RankRequest(world_size=2)) == {"first": 2}


@pytest.mark.parametrize(
    ("machines", "each", "expected"),
    [
        (2, 1, {"large": 1, "small": 1}),
        (2, 2, {"large": 2, "small": 2}),
        (1, 3, {"large": 3}),
        (3, 1, {"large": 1, "small": 1, "tiny": 1}),
        (2, 3, {}),
        (4, 1, {}),
    ],
)
def test_so_many_machines_as_were_asked_for_have_their_share_or_none_has(
    machines: int, each: int, expected: dict[str, int]
) -> None:
    assert place_ranks(ROOMS, RankRequest(world_size=machines * each, machines=machines)) == expected


def test_a_rank_of_several_threads_takes_so_many_cores_of_one_machine() -> None:
    need = RankRequest(world_size=3, threads=2)
    assert slots_for({"a": 5, "b": 3}, need, oversubscribe=False) == {"a": 2, "b": 1}
    assert not place_ranks(slots_for({"a": 3, "b": 3}, need, oversubscribe=False), need)


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        (RankRequest(world_size=9), {"large": 6, "small": 3}),
        (RankRequest(world_size=12, machines=2), {"large": 6, "small": 6}),
        (RankRequest(world_size=3), {"large": 3}),
    ],
)
def test_more_ranks_than_cores_are_shared_out_by_cores_where_that_is_allowed(
    need: RankRequest, expected: dict[str, int]
) -> None:
    cores = {"large": 4, "small": 2}
    assert place_ranks(slots_for(cores, need, oversubscribe=True), need) == expected


def test_no_ranks_go_where_there_are_no_cores() -> None:
    for need in (RankRequest(world_size=2), RankRequest(world_size=2, machines=2)):
        assert "head" not in place_ranks(slots_for({"head": 0, "one": 1}, need, oversubscribe=True), need)


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
