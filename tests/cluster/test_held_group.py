"""Which calls are served by the ranks of the call before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dmls_ray.cluster.held_group import HeldGroup
from dmls_ray.cluster.resources import Machine, RankRequest, Resources, WorkerGroupSpec
from dmls_ray.cluster.worker_group import WorkerGroup
from dmls_ray.config.options import Options

HERE = Resources((Machine(name="here", node_id="1", cores=4, gpus=0),))


class Group(WorkerGroup):
    """Ranks of which only the start and the end are noted."""

    def __init__(self, ranks: int, events: list[str], **limits: Any) -> None:
        demand = WorkerGroupSpec(needs=(RankRequest(world_size=ranks),), device="cpu")
        super().__init__(HERE, demand, private_cluster=True, limits=Options(**limits))
        self.count, self.events = ranks, events

    def __enter__(self) -> Group:
        self.events.append(f"start {self.count}")
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self.events.append(f"end {self.count} {kind.__name__ if kind else 'well'}")


def test_ranks_stay_until_others_are_wanted() -> None:
    events: list[str] = []
    with HeldGroup(Options()) as held:
        assert not held.has_ranks
        for ranks in (1, 1, 2, 2):
            with held.serving(Group(ranks, events)) as group:
                assert group.count == ranks  # type: ignore[attr-defined]
            assert held.has_ranks
    assert events == ["start 1", "end 1 well", "start 2", "end 2 well"]


def test_other_limits_of_runs_need_other_ranks() -> None:
    events: list[str] = []
    with HeldGroup(Options()) as held:
        for timeout in (None, 5.0):
            with held.serving(Group(1, events, run_timeout=timeout)):
                events.append("serve")
    assert events == ["start 1", "serve", "end 1 well", "start 1", "serve", "end 1 well"]


def test_ranks_end_as_cut_short_where_a_call_fails() -> None:
    events: list[str] = []
    with pytest.raises(KeyboardInterrupt), HeldGroup(Options()) as held, held.serving(Group(1, events)):
        raise KeyboardInterrupt
    assert events == ["start 1", "end 1 KeyboardInterrupt"]


def test_ray_starts_with_the_first_call_and_ends_after_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    @contextmanager
    def connected() -> Iterator[Resources]:
        events.append("Ray starts")
        yield HERE
        events.append("Ray ends")

    monkeypatch.setattr("dmls_ray.cluster.held_group.RaySession", lambda *_, **__: SimpleNamespace(connected=connected))
    with HeldGroup(Options(address="local")) as held:
        assert events == []
        for _ in range(2):
            held.connect()
            with held.serving(Group(1, events)):
                events.append("serve")
    assert events == ["Ray starts", "start 1", "serve", "serve", "end 1 well", "Ray ends"]
