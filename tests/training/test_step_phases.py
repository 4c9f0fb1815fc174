"""The parts of a step: which moment belongs to which, and that they add up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dmls_ray.training import marks
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.step_phases import PHASES, StepPhases
from dmls_ray.workloads.classification.train import rank_trainer
from tests.training.test_clocks import Clock
from tests.training.test_engine import config, run_inline

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(marks, "time", clock)
    return clock


def take_step(phases: StepPhases, clock: Clock, **seconds: float) -> None:
    for phase in PHASES:
        clock.now += seconds.get(phase, 0.0)
        phases.after(phase)
    phases.end_step()


def test_each_moment_belongs_to_the_phase_that_is_named_after_it(clock: Clock) -> None:
    phases = StepPhases(CPU)
    phases.begin()
    take_step(phases, clock, data_wait=1, forward=2, backward=3, optimizer=4, rest=5)
    take_step(phases, clock, data_wait=3, forward=2, backward=3, optimizer=4, rest=5)
    assert phases.mean_ms() == {
        "data_wait": 2000, "forward": 2000, "backward": 3000, "optimizer": 4000, "rest": 5000
    }  # fmt: skip


def test_only_each_nth_step_is_measured_where_a_mark_costs_much(clock: Clock) -> None:
    phases = StepPhases(CPU, every=2)
    phases.begin()
    for seconds in (1, 50, 3, 50):
        take_step(phases, clock, backward=seconds)
    assert phases.mean_ms()["backward"] == 2000


def test_the_time_between_two_epochs_is_in_no_phase(clock: Clock) -> None:
    phases = StepPhases(CPU)
    for seconds in (1, 3):
        phases.begin()
        take_step(phases, clock, forward=seconds)
        clock.now += 60
    assert phases.mean_ms() == dict.fromkeys(PHASES, 0.0) | {"forward": 2000}


def parts(values: dict[str, Any]) -> list[float]:
    return [values[f"{phase}_ms"] for phase in PHASES]


@pytest.mark.parametrize("changes", [{}, {"accum_steps": 2}, {"precision": "amp-bf16"}, {"loader": "dataloader"}])
def test_the_phases_add_up_to_the_time_of_a_step(changes: dict[str, Any]) -> None:
    for _ in range(3):  # on a busy machine, a rank may be halted for long between two steps
        result = run_inline(config(warmup_steps=2, loader_workers=0, **changes))
        assert all(ms >= 0 for ms in parts(result.values))
        counted = result.run.metrics["steps"] - result.run.metrics["warmup_steps"]
        share = sum(parts(result.values)) / (result.values["train_s"] / counted * 1e3)
        if share == pytest.approx(1, abs=0.05):
            break
    assert share == pytest.approx(1, abs=0.05)


def test_a_rank_that_waits_for_its_data_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = rank_trainer(config(epochs=1), RankInfo())
    batches = trial.task.train_batches

    def slow(epoch: int) -> Iterator[Any]:
        for item in batches(epoch):
            time.sleep(0.02)
            yield item

    monkeypatch.setattr(trial.task, "train_batches", slow)
    values = trial.run(lambda event: None).metrics
    found = {name: values[f"{name}_ms"] for name in PHASES}
    assert found["data_wait"] > 20
    assert found["data_wait"] > 0.5 * sum(found.values())
