"""Ranks as coroutines, for tests of the scheduler without Ray."""

from __future__ import annotations

import asyncio
import dataclasses
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from dmls_ray.cluster.messages import ExpectedTrainer, Job, Lease, Leave, RankRegistration
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RankResult, RunEvent, RunFinished, is_last
from dmls_ray.workloads.classification.config import TrialConfig


def card(index: int, machine: str = "a", trainer: str = "t", group: int = 0) -> RankRegistration:
    return RankRegistration(
        trainer=trainer,
        group=str(group),
        index=index,
        machine=machine,
        pid=index,
        device="cpu",
        store=(machine, 1000 + index),
    )


def trainers(**ranks: int) -> dict[str, ExpectedTrainer]:
    return {name: ExpectedTrainer(ranks=count) for name, count in ranks.items()}


def killer(ended: list[int], *, works: bool = True) -> Callable[[RankRegistration], Awaitable[bool]]:
    """Ends processes, and notes their pids."""

    async def end(registration: RankRegistration) -> bool:
        ended.append(registration.pid)
        return works

    return end


def job(run_id: str, world_size: int = 1, **place: Any) -> Job:
    config = TrialConfig(batch_per_rank=1, world_size=world_size, **place)
    return Job(
        run_id=run_id, trial_id=run_id.partition("-")[0], train="m:f", config=config, device="cpu", backend="gloo"
    )


async def group(ranks: int = 1, **options: Any) -> tuple[Broker, list[str]]:
    """A broker, and the names of the ranks of a trainer that have joined it."""
    broker = Broker(trainers(t=ranks), **options)
    return broker, [await broker.join(card(index)) for index in range(ranks)]


def attempt_of(lease: Lease | Leave | None) -> str:
    """`<run_id>/<attempt>` of a lease, whose id also names the broker."""
    assert isinstance(lease, Lease)
    return lease.lease_id.partition("/")[2]


async def taken_up(broker: Broker, name: str, oom_kills: int | None = 0) -> Lease:
    """A lease that the rank has begun."""
    lease = await broker.next_lease(name)
    assert isinstance(lease, Lease)
    await broker.begun(name, lease.lease_id, oom_kills)
    return lease


def scenario(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtually(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def soon(awaitable: Awaitable[Any]) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(awaitable)
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def serve(broker: Broker, name: str, log: list[Lease], outcome: str = "ok") -> None:
    while isinstance(lease := await broker.next_lease(name), Lease):
        log.append(lease)
        await broker.epoch(name, lease.lease_id, epoch(1), 1)
        await broker.finish(name, lease.lease_id, result(lease.rank.rank, outcome))


async def serving(broker: Broker, *registrations: RankRegistration) -> list[Lease]:
    """Ranks that join and serve until the test ends; returns the list that grows by their leases."""
    log: list[Lease] = []
    for registration in registrations:
        await soon(serve(broker, await broker.join(registration), log))
    return log


def result(rank: int = 0, outcome: str = "ok", **more: Any) -> RankResult:
    return RankResult(rank=rank, outcome=Outcome(outcome), **more)


def epoch(number: int) -> EpochEnded:
    return EpochEnded(epoch=EpochRecord(epoch=number))


async def follow(broker: Broker, run_id: str) -> list[RunEvent]:
    events: list[RunEvent] = []
    while not events or not is_last(events[-1]):
        events += await broker.events(run_id)
    return events


async def end_of(broker: Broker, run_id: str) -> RunFinished:
    end = (await follow(broker, run_id))[-1]
    assert isinstance(end, RunFinished)
    return end


async def outcome_of(broker: Broker, run_id: str) -> str:
    return (await end_of(broker, run_id)).verdict.outcome.value


def asking(run_id: str, world_size: int = 1) -> Job:
    return dataclasses.replace(job(run_id, world_size), prunable=True)


async def train(broker: Broker, name: str, epochs: int) -> int:
    """A rank that asks after each epoch; returns after how many it stopped."""
    lease = await taken_up(broker, name)
    done = 0
    for number in range(1, epochs + 1):
        done = number
        if not await broker.epoch(name, lease.lease_id, epoch(number), number):
            break
    await broker.finish(name, lease.lease_id, result(lease.rank.rank))
    return done


async def on_machines(broker: Broker, *machines: str) -> dict[str, asyncio.Task[Any]]:
    """The rank of each machine by its name; each has a separate trainer and asks for work."""
    waiting = {}
    for place, machine in enumerate(machines):
        new = card(0, machine, trainer=machine)
        name = await broker.join(dataclasses.replace(new, machine_order=place, machine_info={"host": machine}))
        waiting[name] = await soon(broker.next_lease(name))
    return waiting


LONGEST_S = 20_000.0
"""Virtual seconds after which a test ends: the scheduler only turns in a circle then."""


class WaitsForEver(AssertionError):
    """All coroutines wait and no timer runs, or timers never end the wait."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time jumps to the next timer as soon as all coroutines wait."""

    def __init__(self) -> None:
        self._time = 0.0
        self.is_at_end = False
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._time

    def jump(self, seconds: float | None) -> None:
        """Go to the next timer; None: there is none."""
        self._time += seconds or 0.0
        if self.is_at_end:
            return  # it only cancels what is left
        if seconds is None or self._time > LONGEST_S:
            self.is_at_end = True
            raise WaitsForEver("all coroutines wait, and no timer runs" if seconds is None else "nothing ends the wait")


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout != 0:
            self._loop.jump(timeout)
        return super().select(0)


def run_virtually(test: Coroutine[Any, Any, None]) -> None:
    """Run a test of the scheduler; neither its timers nor its sleeps take time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        time = SimpleNamespace(monotonic=runner.get_loop().time)
        with patch("dmls_ray.cluster.scheduler.attempt.time", time):
            runner.run(test)


async def lane_of(broker: Broker, job: Job) -> int:
    """Submit a run, wait until it has ended ok, and return the lane on which it did."""
    await broker.submit(job)
    while True:
        for event in await broker.events(job.run_id):
            if isinstance(event, RunFinished):
                assert event.verdict.outcome is Outcome.OK, event
                await broker.forget(job.run_id)
                return event.lane
