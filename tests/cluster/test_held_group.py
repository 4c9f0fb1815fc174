"""Which calls are served by the ranks of the call before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from dmls_ray.cluster.held_group import HeldGroup, close, kept_group
from dmls_ray.cluster.resources import Machine, RankRequest, Resources, WorkerGroupSpec
from dmls_ray.cluster.worker_group import WorkerGroup
from dmls_ray.config.options import Options
from dmls_ray.util.errors import ClusterLostError

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

    session = SimpleNamespace(connected=connected, is_private=True)
    monkeypatch.setattr("dmls_ray.cluster.held_group.RaySession", lambda *_, **__: session)
    monkeypatch.setattr("dmls_ray.cluster.held_group.cluster_resources", lambda: HERE)
    with HeldGroup(Options(address="local")) as held:
        assert events == []
        for _ in range(2):
            with held.connected(print) as (found, resources), held.serving(Group(1, events)):
                assert (found, resources) == (session, HERE)
                events.append("serve")
    assert events == ["Ray starts", "start 1", "serve", "serve", "end 1 well", "Ray ends"]


def test_a_failed_call_to_ray_is_the_loss_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(connected=nullcontext, is_private=True)
    monkeypatch.setattr("dmls_ray.cluster.held_group.RaySession", lambda *_, **__: session)
    monkeypatch.setattr("dmls_ray.cluster.held_group.cluster_resources", lambda: HERE)
    held = HeldGroup(Options(address="local"))
    with pytest.raises(ClusterLostError, match="no answer"), held.connected(print):
        raise ray.exceptions.GetTimeoutError("no answer")
    with pytest.raises(ZeroDivisionError), held.connected(print):
        raise ZeroDivisionError


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Callable[..., HeldGroup]:
    """Function that lends the ranks of this process to a call, as if Ray was there."""

    def lend(keep: bool | None = None, *, joins: bool = False, **options: Any) -> HeldGroup:
        session = SimpleNamespace(connected=nullcontext, is_private=not joins, check=lambda: True)
        monkeypatch.setattr("dmls_ray.cluster.held_group.RaySession", lambda *_, **__: session)
        monkeypatch.setattr("dmls_ray.cluster.held_group.cluster_resources", lambda: HERE)
        monkeypatch.setattr(Group, "check", lambda self: None)
        with kept_group(Options(address="local", **options), keep) as held:
            with held.connected(print), held.serving(Group(1, [])):
                pass
        return held

    return lend


def test_the_ranks_of_a_call_stay_for_the_next_one_of_the_process(kept: Callable[..., HeldGroup]) -> None:
    first = kept()
    assert first.has_ranks
    assert kept() is first
    close()
    assert not first.has_ranks
    assert kept() is not first


def test_ranks_that_are_in_the_way_of_others_stay_only_where_that_is_asked_for(
    kept: Callable[..., HeldGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not kept(joins=True).has_ranks
    assert kept(keep=True, joins=True).has_ranks
    assert not kept(keep=False).has_ranks
    monkeypatch.setattr(Group, "holds_gpus", True)
    assert not kept().has_ranks
    assert kept(keep=True).has_ranks


def test_a_changed_environment_or_another_cluster_needs_other_ranks(
    kept: Callable[..., HeldGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kept()
    monkeypatch.setenv("A_VARIABLE_OF_THE_USER", "1")
    second = kept()
    assert second is not first
    assert not first.has_ranks
    assert kept(verbose=True) is not second


def test_ranks_end_with_a_call_that_fails_and_after_a_while_without_a_call(
    kept: Callable[..., HeldGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kept()
    with pytest.raises(ZeroDivisionError), kept_group(Options(address="local"), None):
        raise ZeroDivisionError
    assert not first.has_ranks
    monkeypatch.setattr("dmls_ray.cluster.held_group.IDLE_S", 0.05)
    second = kept()
    until = time.monotonic() + 10
    while second.has_ranks:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_ranks_that_would_import_other_code_or_search_elsewhere_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Group(1, [])
    assert first.serves_as(Group(1, []))
    monkeypatch.chdir(tmp_path)
    assert not first.serves_as(Group(1, []))
    changed = Group(1, [])
    second = Group(1, [])
    assert second.serves_as(changed)
    changed._demand = replace(changed._demand, user_code="edited")
    assert not second.serves_as(changed)
