"""Ranks and trainers that join, leave, wait and are replaced."""

from __future__ import annotations

import asyncio
import dataclasses
from unittest.mock import patch

from dmls_ray.cluster.messages import ExpectedTrainer, Lease
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.run_limits import RunLimits
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RunFinished
from tests.cluster.scheduler.ranks import (
    attempt_of,
    card,
    job,
    on_machines,
    result,
    scenario,
    soon,
    taken_up,
    trainers,
)


@scenario
async def test_no_run_starts_before_all_expected_ranks_are_there() -> None:
    broker = Broker(trainers(t=2))
    first = await soon(broker.next_lease(await broker.join(card(0))))
    await broker.submit(job("r"))
    assert not first.done()
    await soon(broker.next_lease(await broker.join(card(1))))
    assert (await first).rank.rank == 0


@scenario
async def test_a_rank_that_never_asks_again_is_waited_for_once() -> None:
    broker = Broker(trainers(t=2))
    names = [await broker.join(card(index)) for index in range(2)]
    asks = await soon(broker.next_lease(names[1]))
    await broker.submit(job("r"))
    assert not asks.done()
    with patch("dmls_ray.cluster.scheduler.membership.IDLE_REPORT_TIMEOUT_S", 0.0):
        lease = await asks
    assert attempt_of(lease) == "r/1"
    await broker.begun(names[1], lease.lease_id, 0)
    await asyncio.sleep(0.5)
    # It has been silent for longer than that, though the other's run has just ended.
    with patch("dmls_ray.cluster.scheduler.membership.IDLE_REPORT_TIMEOUT_S", 0.5):
        await broker.finish(names[1], lease.lease_id, result(0))
        await broker.submit(job("next"))
        last = await soon(broker.next_lease(names[1]))
        assert last.done()


@scenario
async def test_a_rank_whose_request_was_cancelled_with_its_process_is_given_no_run() -> None:
    broker = Broker(trainers(t=2))
    names = [await broker.join(card(index)) for index in range(2)]
    leases = [await soon(broker.next_lease(name)) for name in names]
    leases[0].cancel()
    with patch("dmls_ray.cluster.scheduler.membership.IDLE_REPORT_TIMEOUT_S", 0.0):
        await asyncio.wait(leases[:1])
        assert await broker.submit(job("r"))
        assert attempt_of(await leases[1]) == "r/1"
    assert not (await soon(broker.next_lease(names[0]))).done(), "it may ask again"


@scenario
async def test_no_run_is_leased_to_a_rank_of_a_group_that_is_being_replaced() -> None:
    broker = Broker(trainers(t=2))
    for index in range(2):
        await soon(broker.next_lease(await broker.join(card(index))))
    # Rank 1 comes back first; rank 0 of the old group still waits for work, and is about to be ended.
    first = await soon(broker.next_lease(await broker.join(card(1, group=1))))
    await broker.submit(job("r", 2))
    assert not first.done()
    second = await soon(broker.next_lease(await broker.join(card(0, group=1))))
    assert (await first).rank.rank == 1
    assert (await second).rank.rank == 0


@scenario
async def test_a_trainer_that_ends_takes_its_ranks_and_wants_no_new_ones() -> None:
    broker = Broker(trainers(t=2))
    mine = await soon(broker.next_lease(await broker.join(card(0, "a", trainer="one"))))
    other = await broker.join(card(0, "b", trainer="two"))
    await broker.end_trainer("one")
    assert await mine is None
    assert list(broker.members.ranks) == [other]
    assert await broker.next_lease(await broker.join(card(0, "a", trainer="one"))) is None
    assert list(broker.members.ranks) == [other]


@scenario
async def test_a_run_whose_child_process_dies_starts_again_on_the_same_ranks() -> None:
    broker = Broker(trainers(t=1))
    name = await broker.join(card(0))
    await broker.submit(job("r"))
    lease = await taken_up(broker, name)
    assert await broker.finish(name, lease.lease_id, result(0, "killed", reason="exit code -11"))
    again = await taken_up(broker, name)
    await broker.finish(name, again.lease_id, result(0, "ok"))
    finished = (await broker.events("r"))[-1]
    assert isinstance(finished, RunFinished)
    assert finished.verdict.outcome is Outcome.OK
    assert [attempt.reason for attempt in finished.earlier] == ["1 of 1 ranks died: exit code -11"]


@scenario
async def test_a_run_whose_machine_is_back_in_time_goes_on() -> None:
    broker = Broker(trainers(a=1, b=1), limits=RunLimits(wait_for_ranks=5))
    waiting = await on_machines(broker, "a", "b")
    await broker.end_trainer("b", left="b")
    await broker.submit(job("r", 2))
    await broker.expect("b.2", ExpectedTrainer(ranks=1, is_optional=True))
    back = dataclasses.replace(card(0, "b", trainer="b.2"), machine_order=1)
    lease = await broker.next_lease(await broker.join(back))
    assert isinstance(lease, Lease)
    assert lease.rank.machines == ("a", "b")
    assert (await next(iter(waiting.values()))).rank.rank == 0
