"""When another broker is started, without Ray."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, patch

import pytest
import ray

from dmls_ray.cluster import broker_supervisor
from dmls_ray.cluster.broker_supervisor import ANSWER_TIMEOUT_S, MAX_EARLY_DEATHS, BrokerSupervisor, _wait_for_death
from dmls_ray.config.run_limits import RunLimits

DIED = ray.exceptions.ActorDiedError()
UNAVAILABLE = ray.exceptions.ActorUnavailableError("the network fails", b"1" * 16)


class FakeRay:
    """Answers `wait_for_death` and `is_alive` in this order; None: not within the timeout."""

    def __init__(self, deaths: list[Any], answers: list[Any]) -> None:
        self.deaths, self.answers = iter(deaths), iter(answers)
        self.killed: list[Any] = []
        self.actor = Mock()
        self.actor.wait_for_death.remote.side_effect = lambda: "death"
        self.actor.is_alive.remote.side_effect = lambda: "alive"

    def wait(self, refs: list[str], timeout: float) -> tuple[list[str], list[str]]:
        self.death = next(self.deaths)
        return (refs, []) if self.death is not None else ([], refs)

    def get(self, ref: str, timeout: float | None = None) -> Any:
        answer = self.death if ref == "death" else next(self.answers)
        if answer is None:
            assert timeout == ANSWER_TIMEOUT_S
            raise ray.exceptions.GetTimeoutError
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def fake(request: pytest.FixtureRequest) -> Iterator[FakeRay]:
    made = FakeRay(*request.param)
    with (
        patch.object(ray, "wait", made.wait),
        patch.object(ray, "get", made.get),
        patch.object(ray, "kill", made.killed.append),
        patch("dmls_ray.cluster.broker_supervisor.RETRY_INTERVAL_S", 0.0),
    ):
        yield made


@pytest.mark.parametrize("fake", [([None, None, DIED], [True, True])], indirect=True)
def test_a_broker_that_answers_is_asked_until_it_dies(fake: FakeRay) -> None:
    with pytest.raises(ray.exceptions.ActorDiedError):
        _wait_for_death(fake.actor, threading.Event(), print)
    assert not fake.killed
    assert fake.actor.wait_for_death.remote.call_count == 1, "calls that wait would fill the broker"


@pytest.mark.parametrize("fake", [([UNAVAILABLE, None, DIED], [UNAVAILABLE])], indirect=True)
def test_a_network_that_fails_for_a_moment_makes_no_second_broker(fake: FakeRay) -> None:
    with pytest.raises(ray.exceptions.ActorDiedError):
        _wait_for_death(fake.actor, threading.Event(), print)
    assert not fake.killed


@pytest.mark.parametrize("fake", [([None, DIED], [None])], indirect=True)
def test_a_broker_that_does_not_answer_is_ended_with_one_line(fake: FakeRay) -> None:
    printed: list[str] = []
    with pytest.raises(ray.exceptions.ActorDiedError):
        _wait_for_death(fake.actor, threading.Event(), printed.append)
    assert fake.killed == [fake.actor]
    assert printed == ["The broker did not answer for 60 s; another takes its place."]


@pytest.mark.parametrize("fake", [([None], [])], indirect=True)
def test_no_call_of_ray_follows_the_end_of_the_sweep_since_it_would_start_another_cluster(fake: FakeRay) -> None:
    ended = threading.Event()

    def wait(refs: list[str], timeout: float) -> tuple[list[str], list[str]]:
        ended.set()  # meanwhile
        return fake.wait(refs, timeout)

    with patch.object(ray, "wait", wait):
        _wait_for_death(fake.actor, ended, print)
    assert not fake.actor.is_alive.remote.called


def supervise(fake: FakeRay, *starts: Exception | None, early_death_s: float = 20.0) -> tuple[int, list[str]]:
    """How many brokers are started, and what the driver hears; `starts`: how each start after the first one ends."""
    following, failures, started, ended = iter([None, *starts]), list[str](), list[int](), threading.Event()

    def start(self: BrokerSupervisor, generation: int) -> Any:
        error = next(following, KeyError)
        if error is KeyError:
            ended.set()
        elif isinstance(error, Exception):
            raise error
        started.append(generation)
        return fake.actor

    with (
        patch.object(BrokerSupervisor, "_start_broker", start),
        patch.object(broker_supervisor, "EARLY_DEATH_S", early_death_s),
    ):
        supervisor = BrokerSupervisor(
            "group", expected=dict, exclusive=True, limits=RunLimits(), ended=ended, controllers=dict,
            has_failed=failures.append, notify=failures.append,
        )  # fmt: skip
        supervisor._thread.join()
    assert started == [*range(len(started))]
    return len(started), failures


@pytest.mark.parametrize("fake", [([DIED], [])], indirect=True)
def test_a_broker_that_cannot_be_started_again_ends_the_sweep_with_the_reason(fake: FakeRay) -> None:
    error = ValueError("no worker\ncould be started")
    assert supervise(fake, error) == (1, ["The broker died, and no other can be started (no worker)"])


@pytest.mark.parametrize("fake", [([DIED] * MAX_EARLY_DEATHS, [])], indirect=True)
def test_brokers_that_die_at_their_start_end_the_sweep_after_some(fake: FakeRay) -> None:
    count, (reason,) = supervise(fake, *[None] * 9)
    assert count == MAX_EARLY_DEATHS
    assert reason.startswith("The broker died, and no other can be started (The actor died")


@pytest.mark.parametrize("fake", [([DIED] * 10, [])], indirect=True)
def test_a_broker_that_has_lived_is_replaced_each_time(fake: FakeRay) -> None:
    assert supervise(fake, *[None] * 9, early_death_s=0.0) == (11, [])
