"""The training function of the benchmark returns what the record of a rank can hold."""

from __future__ import annotations

import pytest

from benchmarks import common
from benchmarks.measuring import communication_row
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import run_ranks

TRIAL = TrialConfig(
    dataset="synthetic:shape=1x8x8,classes=4,train=64,test=8", batch_per_rank=8, epochs=1, device="cpu", warmup_steps=0,
    model="digits_convnet", world_size=2,
)  # fmt: skip


@pytest.mark.parametrize("zero_redundancy", [False, True])
def test_communication_is_measured_in_two_ways(zero_redundancy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "run_spawned", run_ranks)
    row = communication_row(TRIAL.replace(zero_redundancy=zero_redundancy), rounds=1)
    assert float(row["measured"]) > 0
    assert float(row["ratio"]) != 0
