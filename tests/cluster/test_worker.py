"""What a rank says to the broker, and what it does where that does not answer; without Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import ray

from dmls_ray.cluster import worker as worker_module
from dmls_ray.cluster.messages import Lease, TrainerSettings
from dmls_ray.cluster.worker import RankWorker, serve
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import RankInfo
from tests.cluster.scheduler.ranks import epoch, job, result

UNAVAILABLE = ray.exceptions.ActorUnavailableError("the network fails", b"1" * 16)
DIED = ray.exceptions.ActorDiedError()


class Exited(BaseException):
    """The process has ended."""


class ScriptedBroker:
    """Answers each method with the next of its answers; an exception is raised when the answer is read."""

    def __init__(self, **answers: list[Any]) -> None:
        self.name = "broker"
        self.calls: list[tuple[Any, ...]] = []
        self._answers = {method: iter(values) for method, values in answers.items()}

    def submit(self, method: str, *args: Any) -> Any:
        self.calls.append((method, *args))
        return next(self._answers[method])

    def call(self, method: str, *args: Any) -> Any:
        answer = self.submit(method, *args)
        while answer is UNAVAILABLE:
            answer = self.submit(method, *args)
        return read(answer)


def read(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer


def worker(broker: ScriptedBroker) -> RankWorker:
    with patch.object(worker_module, "BrokerClient", lambda name: broker), patch("threading.Thread"):
        registered: Any = (SimpleNamespace(index=0), None, None)
        with patch.object(worker_module, "_register", lambda settings: registered):
            return RankWorker(SimpleNamespace(broker="broker"))  # type: ignore[arg-type]


def lease(run_id: str = "r", rank: int = 0) -> Lease:
    return Lease(lease_id=f"{run_id}/1", job=job(run_id), rank=RankInfo(rank=rank, world_size=2))


@pytest.fixture(autouse=True)
def process() -> Iterator[list[float]]:
    """The times that the rank sleeps."""

    def leave(code: int) -> None:
        raise Exited

    slept: list[float] = []
    with patch.object(ray, "get", read), patch.object(os, "_exit", leave), patch.object(time, "sleep", slept.append):
        yield slept


def finishes(broker: ScriptedBroker) -> list[tuple[str, RankResult]]:
    return [(args[1], args[2]) for method, *args in broker.calls if method == "finish"]


def test_an_ok_that_is_lost_in_the_network_is_sent_again_before_the_next_lease_is_asked_for() -> None:
    broker = ScriptedBroker(join=["a"], finish=[UNAVAILABLE, UNAVAILABLE, True], next_lease=[lease("s")])
    rank = worker(broker)
    rank.finish(lease(), result())
    assert len(finishes(broker)) == 1, "the process group ends meanwhile"
    assert rank.next_lease() == lease("s")
    assert [lease_id for lease_id, _ in finishes(broker)] == ["r/1"] * 3
    assert [method for method, *_ in broker.calls][-1] == "next_lease"


def test_an_ok_that_the_broker_has_is_sent_once() -> None:
    broker = ScriptedBroker(join=["a"], finish=[True], next_lease=[None])
    rank = worker(broker)
    rank.finish(lease(), result())
    assert rank.next_lease() is None
    assert len(finishes(broker)) == 1


@pytest.mark.parametrize("answers", [[False], [UNAVAILABLE, False]])
def test_a_failed_rank_ends_if_others_may_wait_for_it(answers: list[Any]) -> None:
    rank = worker(ScriptedBroker(join=["a"], finish=answers))
    with pytest.raises(Exited):
        rank.finish(lease(), result(0, "error"))


@pytest.mark.parametrize("number", [0, 1])
def test_a_result_brings_all_epochs_of_rank_0_along_in_their_order(number: int) -> None:
    epochs = [epoch(1), epoch(2), epoch(3)]
    broker = ScriptedBroker(join=["a"], emit=[None] * 3, finish=[UNAVAILABLE, True, True], next_lease=[None])
    rank = worker(broker)
    emit = rank.make_emit(lease(rank=number))
    for event in epochs:
        assert emit(event) is None
    rank.finish(lease(), result(number))
    assert rank.next_lease() is None
    reported = [tuple(args[2:]) for method, *args in broker.calls if method == "emit"]
    assert reported == ([(event, place) for place, event in enumerate(epochs, 1)] if number == 0 else [])
    sent = [list(args[3]) for method, *args in broker.calls if method == "finish"]
    assert sent == [epochs if number == 0 else []] * 2, "also where it is sent again"
    rank.make_emit(lease())
    rank.finish(lease(), result())
    assert broker.calls[-1][4] == (), "those of the run before are no part of the next"


def test_a_failed_rank_for_which_none_waits_stays() -> None:
    broker = ScriptedBroker(join=["a"], finish=[True], next_lease=[None])
    rank = worker(broker)
    rank.finish(lease(), result(0, "error"))
    assert rank.next_lease() is None


@pytest.mark.parametrize("reply", [None, DIED])
def test_a_rank_that_was_given_up_or_whose_broker_died_ends(reply: Any) -> None:
    broker = ScriptedBroker(join=["a"], next_lease=[lease()], interruption=[reply])
    rank = worker(broker)
    rank.next_lease()
    with patch.object(worker_module, "BrokerClient", lambda name: broker), pytest.raises(Exited):
        rank._watch_for_lost_peers()


def test_a_rank_goes_on_looking_for_lost_ranks_after_any_error_of_a_look(capfd: pytest.CaptureFixture[str]) -> None:
    gone = ray.exceptions.RaySystemError("an answer that cannot be read")
    broker = ScriptedBroker(join=["a"], interruption=[gone, ("10.0.0.2",), ("10.0.0.3",), KeyboardInterrupt()])
    rank, aborted = worker(broker), list[Any]()

    def abort(addresses: Any) -> None:
        aborted.append(addresses)
        raise OSError("the connections cannot be read")

    with (
        patch.object(worker_module, "BrokerClient", lambda name: broker),
        patch.object(worker_module, "abort_pending_collectives", abort),
        pytest.raises(KeyboardInterrupt),
    ):
        rank._watch_for_lost_peers()
    assert aborted == [("10.0.0.2",), ("10.0.0.3",)]
    assert capfd.readouterr().err.count("OSError: the connections cannot be read") == 2, "for the log of the rank"


def test_a_rank_that_cannot_start_gives_its_trainer_up() -> None:
    broker = ScriptedBroker(trainer_failed=[None])

    def fails(settings: Any) -> None:
        raise FileNotFoundError("no data there")

    settings = TrainerSettings(broker="broker", trainer="t", storage="", working_dir="/nowhere", module_path=())
    with (
        patch.object(worker_module, "BrokerClient", lambda name: broker),
        patch.object(worker_module, "_register", fails),
        patch.object(worker_module, "_machine", lambda settings: "host-2"),
    ):
        serve({"settings": settings})
    reason = "A rank on host-2 could not start: FileNotFoundError: no data there"
    assert broker.calls == [("trainer_failed", "t", reason)]
