"""The broker's benchmark, at a size that takes no time."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import broker as benchmark
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import Verdict


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
