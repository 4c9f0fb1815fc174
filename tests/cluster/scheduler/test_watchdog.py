"""Time limits, and ranks that wait for a lost rank."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from dmls_ray.cluster.messages import Leave
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.run_limits import RunLimits
from dmls_ray.records.run_events import RunFinished, RunStarted
from tests.cluster.scheduler.ranks import (
    attempt_of,
    card,
    end_of,
    follow,
    job,
    killer,
    on_machines,
    result,
    scenario,
    serving,
    soon,
    taken_up,
    trainers,
)


@scenario
async def test_a_rank_that_hangs_after_its_run_is_ended_and_runs_go_on_with_its_successor() -> None:
    ended: list[int] = []
    limits = RunLimits(stall_timeout=0.3)
    broker = Broker(trainers(a=1, b=1), limits=limits, end_process=killer(ended))
    first, second = [await broker.join(card(index, "a", trainer=trainer)) for index, trainer in enumerate("ab")]
    waits = await soon(broker.next_lease(first))
    await broker.submit(job("both", 2))
    while not ended:
        await asyncio.sleep(0.05)
    assert ended == [1], "of those that wait for work none is"
    assert await broker.next_lease(second) == Leave()
    neighbour = await soon(broker.next_lease(await broker.join(card(1, "a", trainer="b", group=1))))
    assert [attempt_of(await task) for task in (waits, neighbour)] == ["both/1", "both/1"]


@scenario
async def test_a_run_without_progress_is_ended_with_its_ranks_and_run_again() -> None:
    ended: list[int] = []
    broker = Broker(trainers(t=2), limits=RunLimits(stall_timeout=0.2), end_process=killer(ended))
    names = [await broker.join(card(index)) for index in range(2)]
    await broker.submit(job("r", 2))
    for name in names:
        await soon(taken_up(broker, name))
    while len(ended) < 2:
        await asyncio.sleep(0.05)
    assert sorted(ended) == [0, 1]
    assert await broker.next_lease(names[0]) == Leave(), "what was given up must not serve on"
    await serving(broker, card(0, group=1), card(1, group=1))
    *events, done = await follow(broker, "r")
    assert isinstance(done, RunFinished)
    assert (done.verdict.outcome.value, done.attempts) == ("ok", 2)
    reason = "no progress for 0.2 s (stall_timeout)"
    assert [(first.outcome, first.reason) for first in done.earlier] == [("timeout", reason)]
    starts = [event for event in events if isinstance(event, RunStarted)]
    assert starts == [RunStarted(attempt=1), RunStarted(attempt=2, after=reason)]


@scenario
async def test_any_sign_of_progress_counts_and_the_time_of_a_run_has_a_bound_of_its_own() -> None:
    broker = Broker(trainers(t=1), limits=RunLimits(stall_timeout=0.7, run_timeout=1.5, max_retries=0))
    name = await broker.join(card(0))
    await broker.submit(job("r"))
    lease = await taken_up(broker, name)

    async def get_on() -> None:
        while True:
            await broker.progress(name, lease.lease_id)
            await asyncio.sleep(0.1)

    task = asyncio.ensure_future(get_on())
    done = await end_of(broker, "r")
    task.cancel()
    assert (done.verdict.outcome.value, done.verdict.reason) == ("timeout", "not done after 1.5 s (run_timeout)")


@patch("dmls_ray.cluster.scheduler.watchdog.PEER_KILL_DELAY_S", 0.3)
@scenario
async def test_a_rank_that_waits_for_a_machine_that_is_gone_is_ended_and_its_run_not_charged() -> None:
    ended: list[int] = []
    limits = RunLimits(max_retries=0, wait_for_ranks=0)
    broker = Broker(trainers(a=1, b=1), limits=limits, end_process=killer(ended))
    waiting = await on_machines(broker, "a", "b")
    await broker.submit(job("r", 2))
    first, _ = waiting
    await broker.begun(first, (await waiting[first]).lease_id, 0)
    await broker.end_trainer("b", left="b")
    while not ended:
        await asyncio.sleep(0.05)
    await soon(broker.next_lease(await broker.join(card(0, "a", trainer="a", group=1))))
    done = await end_of(broker, "r")
    assert ended == [0]
    assert (done.verdict.outcome.value, done.earlier[0].outcome) == ("skipped", "killed")
    assert done.earlier[0].reason == "1 of 2 ranks died: b has left"


@patch("dmls_ray.cluster.scheduler.watchdog.DEATH_DETECTION_TIMEOUT_S", 0.1)
@patch("dmls_ray.cluster.scheduler.watchdog.PEER_KILL_DELAY_S", 0.3)
@scenario
async def test_the_wait_for_a_rank_whose_peer_gave_up_ends() -> None:
    ended: list[int] = []
    broker = Broker(trainers(t=2), limits=RunLimits(max_retries=0), end_process=killer(ended))
    first, second = [await broker.join(card(index)) for index in range(2)]
    tasks = [await soon(broker.next_lease(name)) for name in (first, second)]
    await broker.submit(job("r", 2))
    lease = await tasks[1]
    for name in (first, second):
        await broker.begun(name, lease.lease_id, 0)
    failure = {"outcome": "error", "reason": "Connection refused", "is_symptom": True, "is_disconnected": True}
    assert await broker.finish(second, lease.lease_id, result(1, **failure)), "it may stay"
    done = await end_of(broker, "r")
    assert ended == [0]
    assert done.verdict.outcome.value == "killed"
    assert done.verdict.reason == "1 of 2 ranks died: it waited for one that had ended with Connection refused"
