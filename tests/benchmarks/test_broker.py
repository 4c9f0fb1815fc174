"""The broker's benchmark, at a size that takes no time."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import broker as benchmark
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import Verdict


@pytest.mark.parametrize("mode", ["search", "bench"])
def test_every_run_is_leased_once_and_served_by_as_many_ranks_as_it_asks_for(mode: str) -> None:
    served = asyncio.run(benchmark.timed(mode, machines=4, each=8, count=40, work_s=0.001))
    assert len(served.lease_ms) == 40
    assert min(served.lease_ms) > 0
    assert served.serve_s > 0


def test_a_run_that_does_not_end_well_stops_the_benchmark() -> None:
    async def refused() -> None:
        broker = benchmark.TimedBroker({}, exclusive=False)
        (job,) = benchmark.jobs(1, prunable=False)
        for _ in range(2):
            await broker.has_ended(job.trial_id, Verdict(outcome=Outcome.ERROR, reason="x"))
        await broker.submit(job)
        await benchmark.serve(broker, [], [job], 0.0)

    with pytest.raises(SystemExit, match="ended as skipped: given up"):
        asyncio.run(refused())


def test_memory_is_of_ranks_of_queued_runs_and_of_what_is_left() -> None:
    rows = asyncio.run(benchmark.traced(machines=2, each=8, count=20))
    assert [row["memory"] for row in rows] == ["16 ranks", "and 20 queued runs", "left of them when all have ended"]
    kept, queued, left = (float(row["KiB of each"].split()[0]) for row in rows)
    assert kept > 0
    assert queued > left, "what has ended is forgotten"
