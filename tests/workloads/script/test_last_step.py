"""After which step a script is told to end."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from dmls_ray.workloads.script.last_step import LastStep, ScriptEnd


def steps_until_end(last: int | Literal["auto"] | None, step_ms: float = 1.0) -> int:
    """How many steps a script makes, of at most 60."""
    end = ScriptEnd(last, None)
    clock = SimpleNamespace(total_s=1.0, untimed=nullcontext)
    timer = SimpleNamespace(paused=nullcontext, step_ms=[])
    for number in range(1, 61):
        if number > 5:
            timer.step_ms.append(step_ms)
        steps: Any = SimpleNamespace(count=number, timer=timer, meter=SimpleNamespace(clock=clock))
        try:
            end.step_ended(steps)
        except LastStep:
            assert end.is_reached
            return number
    assert not end.is_reached
    return 60


@pytest.mark.parametrize(
    ("last", "step_ms", "steps"),
    [(7, 1.0, 7), (None, 1e6, 60), ("auto", 1.0, 50), ("auto", 500.0, 10), ("auto", 100.0, 30)],
)
def test_the_last_step_is_the_given_one_or_the_one_after_which_two_seconds_count(
    last: int | Literal["auto"] | None, step_ms: float, steps: int
) -> None:
    assert steps_until_end(last, step_ms) == steps


def test_a_script_that_goes_on_is_told_three_times_and_then_its_process_ends() -> None:
    end, ended = ScriptEnd(1, None), []
    end.end_process = lambda: ended.append("process")
    steps: Any = SimpleNamespace(count=1, meter=SimpleNamespace(clock=SimpleNamespace(total_s=0.5)))
    for _ in range(4):
        assert not ended
        with pytest.raises(LastStep):
            end.step_ended(steps)
    assert (ended, end.first_step_s) == (["process"], 0.5)


@pytest.mark.parametrize(("count", "loss"), [(1, None), (50, 2.0)])
def test_the_last_loss_is_none_where_other_runs_may_end_at_another_step(count: int, loss: float | None) -> None:
    end = ScriptEnd("auto", None)
    end._raised = 1
    assert end.last_loss([2.0] * count) == loss
    assert ScriptEnd(7, None).last_loss([3.0]) == 3.0
