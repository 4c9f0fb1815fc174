"""What the clocks of the scheduler do, by what they are given to do it with."""

from __future__ import annotations

from unittest.mock import patch

from dmls_ray.cluster.messages import ExpectedTrainer
from dmls_ray.cluster.scheduler import attempt as attempt_module
from dmls_ray.cluster.scheduler.attempt import Attempt
from dmls_ray.cluster.scheduler.membership import RESTART_TIMEOUT_S, START_TIMEOUT_S, Membership
from dmls_ray.cluster.scheduler.watchdog import PEER_KILL_DELAY_S, Watchdog
from dmls_ray.config.options import RunLimits
from tests.cluster.scheduler.ranks import card, job


def acts_at(seconds: float, members: Membership, *attempts: Attempt, **limits: float) -> list[str]:
    """Whom the watchdog kills or gives up at this time."""
    acts: list[str] = []
    watchdog = Watchdog(
        RunLimits(**limits),  # type: ignore[arg-type]
        members,
        kill=lambda name, **why: acts.append(f"kill {name}"),
        give_up=lambda name, reason, is_lost=False: acts.append(f"give up {name}{' (lost)' if is_lost else ''}"),
    )
    with patch.object(attempt_module.time, "monotonic", lambda: seconds):
        watchdog.check(attempts)
    return acts


@patch.object(attempt_module.time, "monotonic", lambda: 0.0)
def test_a_run_that_is_overdue_loses_the_ranks_that_have_not_returned() -> None:
    attempt = Attempt(job("r", 2), "r/1", ["a", "b"])
    members = Membership({})
    assert acts_at(9.0, members, attempt, run_timeout=10) == []
    assert acts_at(11.0, members, attempt, run_timeout=10) == ["kill a", "kill b"]
    assert attempt.overdue


@patch.object(attempt_module.time, "monotonic", lambda: 0.0)
def test_ranks_that_wait_for_a_lost_one_are_ended_after_a_while() -> None:
    attempt = Attempt(job("r", 2), "r/1", ["a", "b"])
    attempt.lose("a")
    assert acts_at(PEER_KILL_DELAY_S, Membership({}), attempt) == []
    assert acts_at(PEER_KILL_DELAY_S + 1, Membership({}), attempt) == ["kill b"]


@patch.object(attempt_module.time, "monotonic", lambda: 0.0)
def test_a_rank_without_a_run_that_asks_for_none_is_killed() -> None:
    members = Membership({})
    members.add("a", card(0))
    assert acts_at(31.0, members, stall_timeout=30) == ["kill a"]


@patch.object(attempt_module.time, "monotonic", lambda: 0.0)
def test_a_trainer_whose_ranks_do_not_come_is_given_up_and_one_that_served_is_lost() -> None:
    members = Membership({"t": ExpectedTrainer(ranks=1)})
    assert acts_at(START_TIMEOUT_S + 1, members) == ["give up t"]
    members.add("t/0", card(0))
    assert acts_at(START_TIMEOUT_S + 1, members, stall_timeout=1e6) == []
    members.remove("t/0")
    assert acts_at(RESTART_TIMEOUT_S + 1, members) == ["give up t (lost)"]
