"""The training functions of the benchmarks return what the record of a rank can hold, as any training function must."""

from __future__ import annotations

import functools

import pytest

from benchmarks import measuring_steps
from benchmarks.measuring import utilization
from benchmarks.measuring_steps import communication_row, throughput
from dmls_ray.launchers.inline import run_inline
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import run_ranks

TRIAL = TrialConfig(
    dataset="synthetic:shape=1x8x8,classes=4,train=64,test=8", batch_per_rank=8, epochs=1, device="cpu", warmup_steps=0,
    model="digits_convnet",
)  # fmt: skip


@pytest.mark.parametrize("zero_redundancy", [False, True])
def test_communication_is_measured_in_two_ways(zero_redundancy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_steps, "run_spawned", run_ranks)
    row = communication_row(TRIAL.replace(world_size=2, zero_redundancy=zero_redundancy), rounds=1)
    assert float(row["by timers / with"].split()[0]) > 0
    assert float(row["ratio"]) != 0


def test_throughput_and_the_sampler_are_measured_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_steps, "_FEWEST_ROUNDS", 2)
    monkeypatch.setattr(measuring_steps, "_MOST_ROUNDS", 2)
    measured = run_inline(TRIAL, train=throughput)
    assert measured.outcome == "ok", measured.traceback
    assert measured.run["returned"]["images"] == 64
    assert len(measured.run["returned"]["ours"]) == len(measured.run["returned"]["bare"]) == 2
    sampled = run_inline(TRIAL, train=functools.partial(utilization, rounds=1))
    assert sampled.outcome == "ok", sampled.traceback
