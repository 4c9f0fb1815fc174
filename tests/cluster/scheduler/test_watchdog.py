"""What the clocks of the scheduler do, by what they are given to do it with."""

from __future__ import annotations

from unittest.mock import patch

from dmls_ray.cluster.scheduler import attempt as attempt_module
from dmls_ray.cluster.scheduler.attempt import Attempt
from dmls_ray.cluster.scheduler.membership import Membership
from dmls_ray.cluster.scheduler.watchdog import PEER_KILL_DELAY_S, Watchdog
from dmls_ray.config.options import RunLimits
from tests.cluster.scheduler.ranks import job


def acts_at(seconds: float, *attempts: Attempt, **limits: float) -> list[str]:
    """Whom the watchdog kills or gives up at this time."""
    acts: list[str] = []
    watchdog = Watchdog(
        RunLimits(**limits),  # type: ignore[arg-type]
        Membership({}),
        kill=lambda name, **why: acts.append(f"kill {name}"),
        give_up=lambda name, reason: acts.append(f"give up {name}"),
    )
    with patch.object(attempt_module.time, "monotonic", lambda: seconds):
        watchdog.check(attempts)
    return acts


@patch.object(attempt_module.time, "monotonic", lambda: 0.0)
def test_a_run_that_is_overdue_loses_the_ranks_that_have_not_returned() -> None:
    attempt = Attempt(job("r", 2), "r/1", ["a", "b"])
    assert acts_at(9.0, attempt, run_timeout=10) == []
    assert acts_at(11.0, attempt, run_timeout=10) == ["kill a", "kill b"]
    assert attempt.overdue


@patch.object(attempt_module.time, "monotonic", lambda: 0.0)
def test_ranks_that_wait_for_a_lost_one_are_ended_after_a_while() -> None:
    attempt = Attempt(job("r", 2), "r/1", ["a", "b"])
    attempt.lose("a")
    assert acts_at(PEER_KILL_DELAY_S, attempt) == []
    assert acts_at(PEER_KILL_DELAY_S + 1, attempt) == ["kill b"]
