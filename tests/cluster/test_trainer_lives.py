"""A TorchTrainer and its successors, without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import ray

from dmls_ray.cluster.messages import ExpectedTrainer
from dmls_ray.cluster.trainer_lives import run_trainer

EXPECTED = ExpectedTrainer(ranks=2, machine="host-1")


class FakeBroker:
    """Answers with a reason, or with none."""

    def __init__(self, **reasons: str) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._reasons = reasons

    def call(self, method: str, *args: Any) -> str:
        self.calls.append((method, *args))
        return self._reasons.get(method, "")


def lives(broker: FakeBroker, *ends: Exception | None, over: Sequence[bool] = (), starts: bool = True) -> str:
    """The reason after trainers that end so; `over` answers the question whether the ranks are needed no more."""
    remaining, answers = iter(ends), iter(over)

    def fit(trainer: str) -> None:
        names.append(trainer)
        if (error := next(remaining)) is not None:
            raise error

    names: list[str] = []
    reason = run_trainer(
        broker,  # type: ignore[arg-type]
        "t",
        lambda: EXPECTED,
        fit=fit,
        is_over=lambda: next(answers, False),
        rename=lambda trainer: starts,
    )
    assert names == ["t", *(f"t.{life}" for life in range(1, len(names)))]
    return reason


def test_a_trainer_whose_controller_dies_is_followed_by_another_of_which_the_broker_knows() -> None:
    broker = FakeBroker()
    assert lives(broker, ray.exceptions.ActorDiedError(), ray.exceptions.ActorDiedError(), None) == ""
    assert broker.calls == [
        ("replace_trainer", "t", "t.1", EXPECTED),
        ("replace_trainer", "t.1", "t.2", EXPECTED),
        ("refusal", "t.2"),
    ]


def test_the_broker_decides_that_there_is_no_other_trainer() -> None:
    assert lives(FakeBroker(replace_trainer="died too often"), ray.exceptions.ActorDiedError()) == "died too often"


def test_a_trainer_that_fails_in_another_way_is_given_up_at_once() -> None:
    broker = FakeBroker()
    reason = "Ray Train's worker group failed: no"
    assert lives(broker, ValueError("no\nmore")) == reason
    assert broker.calls == [("trainer_failed", "t", reason)]


def test_a_trainer_whose_ranks_refuse_to_serve_reports_why() -> None:
    assert lives(FakeBroker(refusal="no data there"), None) == "no data there"


@pytest.mark.parametrize("end", [ray.exceptions.ActorDiedError(), ValueError("no"), None, SystemExit()])
def test_no_trainer_follows_after_the_end_of_the_sweep(end: Any) -> None:
    broker = FakeBroker()
    assert lives(broker, end, over=[True]) == ""
    assert not broker.calls


def test_no_trainer_follows_on_a_machine_that_has_left() -> None:
    broker = FakeBroker()
    assert lives(broker, ray.exceptions.ActorDiedError(), starts=False) == ""
    assert not broker.calls
