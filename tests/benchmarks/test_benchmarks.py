"""The benchmarks, at a size that takes no time."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import broker as benchmark
from benchmarks import common
from benchmarks.measuring import communication_row
from benchmarks.reference import REFERENCE, commands
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import Verdict
from dmls_ray.workloads.classification.config import TrialConfig
from tests.conftest import PROJECT
from tests.new_processes import run_ranks


@pytest.mark.parametrize("mode", ["search", "bench"])
def test_every_run_is_served(mode: str) -> None:
    row = asyncio.run(benchmark.measure(mode, machines=4, ranks_per_machine=8, count=40, work_s=0.001))
    assert float(row["runs/s"].replace(",", "")) > 0


def test_a_run_that_does_not_end_well_stops_the_benchmark() -> None:
    async def refused() -> None:
        broker = Broker({}, exclusive=False)
        (job,) = benchmark.jobs(1, prunable=False)
        for _ in range(2):
            await broker.has_ended(job.trial_id, Verdict(outcome=Outcome.ERROR, reason="x"))
        await broker.submit(job)
        await benchmark.serve(broker, [], [job], 0.0)

    with pytest.raises(SystemExit, match="ended as skipped .*: given up"):
        asyncio.run(refused())


TRIAL = TrialConfig(
    dataset="synthetic:shape=1x8x8,classes=4,train=64,test=8", batch_per_rank=8, epochs=1, device="cpu", warmup_steps=0,
    model="digits_convnet", world_size=2,
)  # fmt: skip


def test_communication_is_measured_in_two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "run_spawned", run_ranks)
    row = communication_row(TRIAL, rounds=1)
    assert float(row["measured"]) > 0
    assert float(row["ratio"]) != 0


def test_every_sweep_that_needs_neither_downloads_nor_root_can_be_measured_again() -> None:
    known = commands()
    assert {"batch_size", "quantization", "grayscale"} <= known.keys()
    assert not {"machines", "cifar10_convnet"} & known.keys()
    for name, (script, *_) in known.items():
        assert (REFERENCE / name / "runs.jsonl").is_file()
        assert (PROJECT / script).is_file()
