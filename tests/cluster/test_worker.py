"""What a rank says to the broker, and what it does where that does not answer; without Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import ray

from dmls_ray.cluster import worker as worker_module
from dmls_ray.cluster.messages import Lease
from dmls_ray.cluster.worker import RankWorker
from dmls_ray.config.identity import Identity
from dmls_ray.records.run_events import Progress, RankResult
from dmls_ray.training import child_run
from dmls_ray.training.rank import RankInfo
from tests.cluster.scheduler.ranks import epoch, job, result

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
        return read(self.submit(method, *args))


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
def process() -> Iterator[None]:
    def leave(code: int) -> None:
        raise Exited

    with patch.object(ray, "get", read), patch.object(os, "_exit", leave):
        yield


def finishes(broker: ScriptedBroker) -> list[tuple[str, RankResult]]:
    return [(args[1], args[2]) for method, *args in broker.calls if method == "finish"]


def test_an_ok_is_confirmed_before_the_next_lease_is_asked_for() -> None:
    broker = ScriptedBroker(join=["a"], finish=[DIED], next_lease=[None])
    rank = worker(broker)
    rank.finish(lease(), result())
    assert len(finishes(broker)) == 1, "the process group ends meanwhile"
    with pytest.raises(ray.exceptions.ActorDiedError):
        rank.next_lease()
    assert broker.calls[-1][0] == "finish"


def test_a_failed_rank_ends_if_others_may_wait_for_it() -> None:
    rank = worker(ScriptedBroker(join=["a"], finish=[False]))
    with pytest.raises(Exited):
        rank.finish(lease(), result(0, "error"))


def test_a_result_brings_all_epochs_along_in_their_order() -> None:
    epochs = [epoch(1), epoch(2), epoch(3)]
    broker = ScriptedBroker(join=["a"], epoch=[None] * 3, progress=[None], finish=[True])
    rank = worker(broker)
    for event in epochs:
        assert rank.emit(lease(), event) is None
    assert rank.emit(lease(), Progress()) is None
    rank.finish(lease(), result())
    reported = [tuple(args[2:]) for method, *args in broker.calls if method == "epoch"]
    assert reported == [(event, place) for place, event in enumerate(epochs, 1)]
    assert list(broker.calls[-1][4]) == epochs


@pytest.mark.parametrize(
    ("oom_kills", "ended", "outcome"),
    [([0, 0], "error", "error"), ([0, 1], "error", "error"), ([0, 0], "killed", "killed"), ([0, 1], "killed", "oom")],
)
def test_a_process_that_ends_without_a_result_has_one_of_its_end(
    monkeypatch: pytest.MonkeyPatch, oom_kills: list[int], ended: str, outcome: str
) -> None:
    broker = ScriptedBroker(join=["a"], begun=[None], finish=[True])
    rank = worker(broker)
    counts = iter(oom_kills)
    monkeypatch.setattr(worker_module, "oom_kills", lambda: next(counts))
    monkeypatch.setattr(worker_module, "_fork_server", lambda train: SimpleNamespace(wait_until_ready=lambda: None))
    monkeypatch.setattr(child_run, "run_in_child", lambda *given: result(0, ended, reason="its end"))
    given = lease()
    rank.run(replace(given, job=replace(given.job, identity=Identity(code={"train.py": "x"}))))
    ((lease_id, taken),) = finishes(broker)
    assert (lease_id, taken.outcome) == (given.lease_id, outcome)


def test_a_failed_rank_for_which_none_waits_stays() -> None:
    broker = ScriptedBroker(join=["a"], finish=[True], next_lease=[None])
    rank = worker(broker)
    rank.finish(lease(), result(0, "error"))
    assert rank.next_lease() is None
