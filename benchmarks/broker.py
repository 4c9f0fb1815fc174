"""Cost of the broker alone: 10,000 queued runs on 1,000 ranks of 125 machines, without Ray and without PyTorch.

Ranks and Trainables are coroutines in the broker's process, so only its rules are measured. `scale.py` includes the
cost of Ray's calls. Runs take 1 to 16 ranks each.

search    runs go in parallel; every rank asks after its epoch whether to continue, and one run in ten is stopped there
bench     one run at a time, as a sweep measures; its ranks have nothing to do, so a run takes what the broker takes
a lease   from the look at the queue to the message to the last rank of the run
memory    as Python traces its objects: after all ranks have joined, with all runs queued, and once all have ended and
          been forgotten
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import pickle
import random
import statistics
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import psutil

from dmls_ray.analysis.export.text_tables import markdown
from dmls_ray.cluster.messages import ExpectedTrainer, Job, Lease, RankRegistration
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.cluster.scheduler.retry import Queued
from dmls_ray.records.epoch_and_rank import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import describe_machine, describe_versions
from dmls_ray.records.run_events import EpochEnded, RankResult, RunFinished
from dmls_ray.workloads.classification.config import TrialConfig

MOST_RANKS = 16
STOPPED = 10
"""In a search, one run in so many is stopped after its epoch."""
MIB = 2**20


class TimedBroker(Broker):
    """A broker whose leases are timed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lease_ms: list[float] = []
        self._looked = 0.0

    def dispatch(self) -> None:
        self._looked = time.perf_counter()
        super().dispatch()

    def start(self, queued: Queued, names: list[str]) -> None:
        super().start(queued, names)
        now = time.perf_counter()
        self.lease_ms.append((now - self._looked) * 1e3)
        self._looked = now


@dataclass
class Served:
    """What became of all runs in one mode."""

    mode: str
    join_s: float = 0.0
    submit_s: float = 0.0
    serve_s: float = 0.0
    """From the first lease that can be to the last run that has ended."""
    processor_s: float = 0.0
    """Of this process, in that time."""
    lease_ms: list[float] = field(default_factory=list)


def cards(machines: int, each: int) -> list[RankRegistration]:
    """The ranks of so many machines, a trainer a machine."""
    return [
        RankRegistration(
            trainer=f"trainer-{machine}",
            group="0",
            index=index,
            machine=f"machine-{machine}",
            pid=machine * each + index,
            device="cpu",
            store=(f"machine-{machine}", 29_500 + index),
            machine_order=machine,
        )
        for machine in range(machines)
        for index in range(each)
    ]


def jobs(count: int, *, prunable: bool) -> list[Job]:
    """Runs of 1 to 16 ranks in a random order; each is a separate object, as if it came over a network."""
    sizes = random.Random(0)
    made = []
    for number in range(count):
        config = TrialConfig(batch_per_rank=32, world_size=sizes.randint(1, MOST_RANKS), device="cpu")
        job = Job(
            run_id=f"{number:012x}-0",
            trial_id=f"{number:012x}",
            train="dmls_ray.workloads.classification.train:train_rank",
            config=config,
            device="cpu",
            backend="gloo",
            prunable=prunable,
        )
        made.append(pickle.loads(pickle.dumps(job)))
    return made


async def rank(broker: Broker, name: str, work_s: float) -> None:
    """A rank that computes nothing: it takes leases, reports an epoch and returns, until there is none left."""
    while isinstance(lease := await broker.next_lease(name), Lease):
        await broker.begun(name, lease.lease_id, None)
        if work_s:
            await asyncio.sleep(work_s)
        event = EpochEnded(epoch=EpochRecord(epoch=1))
        if lease.rank.prunable:
            await broker.epoch(name, lease.lease_id, event, 1)
        elif lease.rank.rank == 0:
            await broker.emit(name, lease.lease_id, event, 1)
        await broker.finish(name, lease.lease_id, RankResult(rank=lease.rank.rank))


async def follow(broker: Broker, job: Job) -> int:
    """A Trainable: receives the events of its run, decides, and forgets; returns the number of returned ranks."""
    stops = job.prunable and int(job.trial_id, 16) % STOPPED == 0
    while True:
        for event in await broker.events(job.run_id):
            if isinstance(event, EpochEnded) and job.prunable:
                await broker.decide(job.run_id, 1, None if stops else 1)
            elif isinstance(event, RunFinished):
                await broker.forget(job.run_id)
                verdict = event.verdict
                if verdict.outcome is not Outcome.OK:
                    raise SystemExit(f"run {job.run_id} ended as {verdict.outcome.value}: {verdict.reason}")
                return len(event.results)


async def joined(broker: Broker, all_cards: Sequence[RankRegistration]) -> list[str]:
    """All ranks are there; returns their names."""
    return [await broker.join(card) for card in all_cards]


async def serve(broker: Broker, names: Sequence[str], runs: Sequence[Job], work_s: float) -> None:
    """Let the ranks work until all runs that were submitted have ended.

    Raises:
        SystemExit: one of them did not end as it should.
    """
    followers = [asyncio.ensure_future(follow(broker, job)) for job in runs]
    lengths = random.Random(1)
    ranks = [asyncio.ensure_future(rank(broker, name, work_s * 2 * lengths.random())) for name in names]
    returned = await asyncio.gather(*followers)
    await broker.close()
    await asyncio.gather(*ranks)
    for job, count in zip(runs, returned, strict=True):
        if count != job.config.world_size:
            raise SystemExit(f"run {job.run_id} was to have {job.config.world_size} ranks and had {count}")


async def timed(mode: str, machines: int, each: int, count: int, work_s: float) -> Served:
    """Serve so many runs in one mode, and time it."""
    served, all_cards = Served(mode), cards(machines, each)
    runs = jobs(count, prunable=mode == "search")
    broker = TimedBroker({card.trainer: ExpectedTrainer(ranks=each) for card in all_cards}, exclusive=mode == "bench")
    began = time.perf_counter()
    names = await joined(broker, all_cards)
    there = time.perf_counter()
    for job in runs:
        await broker.submit(job)
    queued, processor = time.perf_counter(), time.process_time()
    await serve(broker, names, runs, work_s)
    served.join_s, served.submit_s = there - began, queued - there
    served.serve_s, served.processor_s = time.perf_counter() - queued, time.process_time() - processor
    served.lease_ms = broker.lease_ms
    return served


async def traced(machines: int, each: int, count: int) -> list[dict[str, str]]:
    """Memory of a broker whose ranks are all there, whose runs are all queued, and whose runs have all ended."""
    tracemalloc.start()
    rows: list[dict[str, str]] = []
    before = _traced()
    all_cards = cards(machines, each)
    broker = Broker({card.trainer: ExpectedTrainer(ranks=each) for card in all_cards}, exclusive=False)
    names = await joined(broker, all_cards)
    with_ranks = _traced()
    rows.append(_memory_row(f"{len(names):,} ranks", with_ranks - before, len(names), "a rank"))
    runs = jobs(count, prunable=True)
    for job in runs:
        await broker.submit(job)
    with_runs = _traced()
    rows.append(_memory_row(f"and {count:,} queued runs", with_runs - with_ranks, count, "a run"))
    await serve(broker, names, runs, 0.0)
    runs.clear()
    rows.append(_memory_row("left of them when all have ended", _traced() - with_ranks, count, "a run"))
    tracemalloc.stop()
    return rows


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _memory_row(what: str, size: int, count: int, of: str) -> dict[str, str]:
    return {"memory": what, "MiB": f"{size / MIB:.1f}", "KiB of each": f"{size / 1024 / count:.2f} {of}"}


def table_of(all_served: Sequence[Served], count: int) -> pd.DataFrame:
    """A row a mode."""
    rows: list[dict[str, Any]] = []
    for served in all_served:
        quantiles = statistics.quantiles(served.lease_ms, n=20)
        rows.append(
            {
                "mode": served.mode,
                "runs": f"{count:,}",
                "a lease, ms: median": f"{statistics.median(served.lease_ms):.3f}",
                "95th percentile": f"{quantiles[-1]:.3f}",
                "max": f"{max(served.lease_ms):.3f}",
                "all ranks join, s": f"{served.join_s:.3f}",
                "all are queued, s": f"{served.submit_s:.2f}",
                "all are served, s": f"{served.serve_s:.1f}",
                "runs/s": f"{count / served.serve_s:,.0f}",
                "processor ms a run": f"{served.processor_s / count * 1e3:.2f}",
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=125)
    parser.add_argument("--ranks-per-machine", type=int, default=8)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--work-s", type=float, default=0.05, help="in a search, seconds of a run (default: 0.05)")
    args = parser.parse_args()
    if args.machines * args.ranks_per_machine < MOST_RANKS:
        parser.error(f"--machines x --ranks-per-machine is below {MOST_RANKS}, which the largest run takes; give more.")
    size = (args.machines, args.ranks_per_machine, args.runs)
    all_served = [asyncio.run(timed(mode, *size, work_s)) for mode, work_s in (("search", args.work_s), ("bench", 0))]
    resident = psutil.Process().memory_info().rss / MIB
    memory = asyncio.run(traced(*size))
    print(markdown(table_of(all_served, args.runs)))
    print("\n" + markdown(pd.DataFrame(memory)))
    print(
        f"\n{args.machines * args.ranks_per_machine:,} ranks on {args.machines} machines, all simulated; resident "
        f"set of the whole process, ranks and Trainables included: {resident:,.0f} MiB"
    )
    machine, versions = describe_machine(), describe_versions()
    print(f"{machine['cpu']}, {machine['cores']} cores; python {versions['python']}")


if __name__ == "__main__":
    main()
