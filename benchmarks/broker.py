"""Cost of the broker alone: 10,000 queued runs on 1,000 ranks of 125 machines, without Ray and without PyTorch.

Ranks and Trainables are coroutines in the broker's process, so only its rules are measured. `scale.py` includes the
cost of Ray's calls. Runs take 1 to 16 ranks each.

search    runs go in parallel; every rank asks after its epoch whether to continue, and one run in ten is stopped there
bench     one run at a time, as a sweep measures; its ranks have nothing to do, so a run takes what the broker takes
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import machine, print_table
from dmls_ray.cluster.messages import ExpectedTrainer, Job, Lease, RankRegistration
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RankResult, RunFinished
from dmls_ray.workloads.classification.config import TrialConfig

MOST_RANKS = 16
STOPPED = 10
"""In a search, one run in so many is stopped after its epoch."""


def registrations(machines: int, ranks_per_machine: int) -> list[RankRegistration]:
    """The ranks of so many machines, a trainer a machine."""
    return [
        RankRegistration(
            trainer=f"trainer-{machine}",
            group="0",
            index=index,
            machine=f"machine-{machine}",
            pid=machine * ranks_per_machine + index,
            device="cpu",
            store=(f"machine-{machine}", 29_500 + index),
            machine_order=machine,
        )
        for machine in range(machines)
        for index in range(ranks_per_machine)
    ]


def jobs(count: int, *, prunable: bool) -> list[Job]:
    """Runs of 1 to 16 ranks in a random order."""
    sizes = random.Random(0)
    return [
        Job(
            run_id=f"{number:012x}-0",
            trial_id=f"{number:012x}",
            train="dmls_ray.workloads.classification.train:train_rank",
            config=TrialConfig(batch_per_rank=32, world_size=sizes.randint(1, MOST_RANKS), device="cpu"),
            device="cpu",
            backend="gloo",
            prunable=prunable,
        )
        for number in range(count)
    ]


async def rank(broker: Broker, name: str, work_s: float) -> None:
    """A rank that computes nothing: it takes leases, reports an epoch and returns, until there is none left."""
    while isinstance(lease := await broker.next_lease(name), Lease):
        await broker.begun(name, lease.lease_id, None)
        if work_s:
            await asyncio.sleep(work_s)
        event = EpochEnded(epoch=EpochRecord(epoch=1))
        if lease.rank.prunable or lease.rank.rank == 0:
            await broker.epoch(name, lease.lease_id, event, 1)
        await broker.finish(name, lease.lease_id, RankResult(rank=lease.rank.rank))


async def follow(broker: Broker, job: Job) -> None:
    """A Trainable: receives the events of its run, decides, and forgets.

    Raises:
        SystemExit: the run did not end as it should.
    """
    stops = job.prunable and int(job.trial_id, 16) % STOPPED == 0
    while True:
        for event in await broker.events(job.run_id):
            if isinstance(event, EpochEnded) and job.prunable:
                await broker.decide(job.run_id, 1, None if stops else 1)
            elif isinstance(event, RunFinished):
                await broker.forget(job.run_id)
                verdict = event.verdict
                if verdict.outcome is not Outcome.OK or len(event.results) != job.config.world_size:
                    raise SystemExit(
                        f"run {job.run_id} of {job.config.world_size} ranks ended as {verdict.outcome.value} with "
                        f"{len(event.results)} results: {verdict.reason}"
                    )
                return


async def serve(broker: Broker, names: Sequence[str], runs: Sequence[Job], work_s: float) -> None:
    """Let the ranks work until all runs that were submitted have ended."""
    lengths = random.Random(1)
    ranks = [asyncio.ensure_future(rank(broker, name, work_s * 2 * lengths.random())) for name in names]
    await asyncio.gather(*(follow(broker, job) for job in runs))
    await broker.close()
    await asyncio.gather(*ranks)


async def measure(mode: str, machines: int, ranks_per_machine: int, count: int, work_s: float) -> dict[str, str]:
    """Serve so many runs in one mode; returns a row of the output."""
    everyone = registrations(machines, ranks_per_machine)
    runs = jobs(count, prunable=mode == "search")
    expected = {item.trainer: ExpectedTrainer(ranks=ranks_per_machine) for item in everyone}
    broker = Broker(expected, exclusive=mode == "bench")
    began = time.perf_counter()
    names = [await broker.join(item) for item in everyone]
    joined = time.perf_counter()
    for job in runs:
        await broker.submit(job)
    queued, processor = time.perf_counter(), time.process_time()
    await serve(broker, names, runs, work_s)
    ended, processor_s = time.perf_counter(), time.process_time() - processor
    return {
        "mode": mode,
        "runs": f"{count:,}",
        "all ranks join, s": f"{joined - began:.3f}",
        "all are queued, s": f"{queued - joined:.2f}",
        "all are served, s": f"{ended - queued:.1f}",
        "runs/s": f"{count / (ended - queued):,.0f}",
        "processor ms a run": f"{processor_s / count * 1e3:.2f}",
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=125)
    parser.add_argument("--ranks-per-machine", type=int, default=8)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--work-s", type=float, default=0.05, help="in a search, seconds of a run (default: 0.05)")
    args = parser.parse_args()
    ranks = args.machines * args.ranks_per_machine
    if ranks < MOST_RANKS:
        parser.error(f"--machines x --ranks-per-machine is below {MOST_RANKS}, which the largest run takes; give more.")
    size = (args.machines, args.ranks_per_machine, args.runs)
    print_table([asyncio.run(measure("search", *size, args.work_s)), asyncio.run(measure("bench", *size, 0.0))])
    print(f"\n{ranks:,} ranks on {args.machines} machines, all simulated\n{machine('python')}")


if __name__ == "__main__":
    main()
