from __future__ import annotations

import time

import pytest
import torch

from dmls_ray.records.model import STEP_QUANTILES
from dmls_ray.training import run_clock
from dmls_ray.training.clocks import RUN_PHASES, PhaseClock, StepTimer
from dmls_ray.training.run_clock import RunClock

CPU = torch.device("cpu")


class Clock:
    """A clock that moves only when it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(run_clock, "time", clock)
    return clock


def test_phases_and_the_time_between_them_add_up_to_the_total(clock: Clock) -> None:
    run = RunClock()
    clock.now += 0.5
    phases = PhaseClock(CPU, run)
    for name in ("setup_s", "eval_s", "eval_s"):
        with phases.phase(name):
            clock.now += 1.0
        clock.now += 0.25
    assert phases.read() == {"setup_s": 1.5, "total_s": 4.25, "instruments_s": 0.0}
    measured = {"setup_s": 1.5, "eval_s": 2.0, "between_s": 0.75}
    assert phases.phases(4.25) == dict.fromkeys(RUN_PHASES, 0.0) | measured


def test_what_instruments_take_is_in_no_phase_and_not_in_the_total(clock: Clock) -> None:
    run = RunClock()
    run.start(instruments_s=0.4)
    clock.now += 0.1
    phases = PhaseClock(CPU, run)
    with phases.phase("setup_s"):
        clock.now += 1.0
        with phases.untimed():
            clock.now += 0.2
    with phases.untimed():
        clock.now += 0.2
    assert phases.total_s == pytest.approx(1.1)
    assert phases.seconds["setup_s"] == pytest.approx(1.1)
    assert phases.instruments_s == pytest.approx(0.8)


def run_epoch(timer: StepTimer, steps: int) -> tuple[float, float, int]:
    timer.begin_epoch()
    for _ in range(steps):
        timer.add_samples(4)
        time.sleep(0.002)
        timer.step()
    return timer.end_epoch()


def test_a_pause_between_two_steps_is_in_no_step_no_part_of_one_and_no_sum() -> None:
    timer = StepTimer(CPU, warmup_steps=1)
    timer.begin_epoch()
    for _ in range(4):
        time.sleep(0.002)
        timer.phases.after("forward")
        timer.step()
        with timer.paused():
            time.sleep(0.05)
    warmup_s, train_s, _ = timer.end_epoch()
    assert 0.002 <= warmup_s < 0.05
    assert 3 * 0.002 <= train_s < 0.05
    assert len(timer.step_ms) == 3
    assert max(timer.step_ms) < 50
    assert sum(timer.phases.mean_ms().values()) < 50


def test_a_warm_up_may_span_epochs() -> None:
    timer = StepTimer(CPU, warmup_steps=6)
    warmup_s, train_s, images = run_epoch(timer, 4)
    assert (train_s, images) == (0.0, 0)
    assert warmup_s > 0
    assert (timer.percentiles(), timer.quantiles()) == ({}, [])
    assert run_epoch(timer, 4)[2] == 2 * 4


def test_quantiles_are_of_the_counted_steps_and_have_four_digits() -> None:
    timer = StepTimer(CPU, warmup_steps=0)
    timer.step_ms = [1.23456 + count for count in range(101)]
    assert timer.quantiles() == [
        1.235, 6.235, 11.23, 26.23, 51.23, 76.23, 91.23, 96.23, 100.2, 101.2
    ]  # fmt: skip
    assert len(STEP_QUANTILES) == 10
