"""Which machines make a lane."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.cluster.lane_plan import plan_lanes
from dmls_ray.cluster.resources import Machine, RankRequest, Resources, WorkerGroupSpec


def machines(**kinds: str) -> Resources:
    """Machines of four cores, each of a kind."""
    return Resources(tuple(Machine(name, name, 4, 0, kind) for name, kind in kinds.items()))


def need(*sizes: int, **more: Any) -> WorkerGroupSpec:
    return WorkerGroupSpec(needs=[RankRequest(world_size=size, **more) for size in sizes], device="cpu")


SIX = machines(a="x", b="y", c="x", d="x", e="y", f="x")


@pytest.mark.parametrize(
    ("demand", "most", "expected"),
    [
        (need(1, 2), "auto", {1: {"a": 2}, 2: {"c": 2}, 3: {"d": 2}, 4: {"f": 2}}),
        (need(1, 2), "all", {1: {"a": 2}, 2: {"c": 2}, 3: {"d": 2}, 4: {"f": 2}, 5: {"b": 2}, 6: {"e": 2}}),
        (need(1, 2), 2, {1: {"a": 2}, 2: {"c": 2}}),
        (need(1, 2), 1, {1: {"a": 2}}),
        (need(6), "auto", {1: {"a": 4, "c": 2}, 2: {"d": 4, "f": 2}}),
        (need(12), "auto", {1: {"a": 4, "b": 4, "c": 4}}),
        (need(2, machines=2), "auto", {1: {"a": 1, "c": 1}, 2: {"d": 1, "f": 1}}),
        (need(30), "auto", {1: {}}),
    ],
)
def test_lanes_are_made_of_equal_machines_and_each_serves_every_run(
    demand: WorkerGroupSpec, most: Any, expected: dict[int, dict[str, int]]
) -> None:
    assert plan_lanes(SIX, demand, most) == expected


def test_machines_of_another_number_of_cores_are_not_equal() -> None:
    resources = Resources((Machine("a", "a", 8, 0, "x"), Machine("b", "b", 4, 0, "x"), Machine("c", "c", 4, 0, "x")))
    assert plan_lanes(resources, need(2), "auto") == {1: {"b": 2}, 2: {"c": 2}}


def test_lanes_keep_their_machines_and_those_that_lost_one_get_another() -> None:
    before = plan_lanes(SIX, need(6), "auto")
    without_d = machines(a="x", c="x", f="x", b="y", e="y")
    assert plan_lanes(without_d, need(6), "auto", before) == {1: {"a": 4, "c": 2}}
    with_spare = machines(a="x", c="x", f="x", g="x")
    assert plan_lanes(with_spare, need(6), "auto", before) == {1: {"a": 4, "c": 2}, 2: {"f": 4, "g": 2}}
    part = plan_lanes(machines(a="x"), need(6), "auto", {1: {"a": 4, "c": 2}})
    assert part == {1: {}}, "what is left serves no run"
    some = plan_lanes(machines(a="x"), need(2, 6), "auto", {1: {"a": 4, "c": 2}})
    assert some == {1: {"a": 2}}
    assert plan_lanes(machines(a="x", c="x"), need(2, 6), "auto", some) == {1: {"a": 4, "c": 2}}
    assert plan_lanes(machines(b="y", f="x"), need(2), "auto", {1: {"a": 2}, 4: {"f": 2}}) == {4: {"f": 2}}
    assert plan_lanes(machines(b="y"), need(2), "auto", {1: {"a": 2}}) == {1: {"b": 2}}


def test_a_number_of_lanes_divides_the_cores_and_gpus_of_equal_machines() -> None:
    one = Resources((Machine("a", "a", 8, 4),))
    on_gpus = WorkerGroupSpec(needs=[RankRequest(world_size=size) for size in (1, 2)], device="cuda")
    assert plan_lanes(one, on_gpus, 2) == {1: {"a": 2}, 2: {"a": 2}}
    assert plan_lanes(one, on_gpus, 4) == {1: {"a": 2}}, "a quarter of the GPUs is too few"
    assert plan_lanes(one, need(2), 4) == {number: {"a": 2} for number in (1, 2, 3, 4)}
    assert plan_lanes(one, need(2), "auto") == {1: {"a": 2}}
    two = machines(a="x", b="x")
    assert plan_lanes(two, need(2), 4) == {1: {"a": 2}, 2: {"a": 2}, 3: {"b": 2}, 4: {"b": 2}}
    assert plan_lanes(two, need(2), 3) == {1: {"a": 2}, 2: {"b": 2}}
