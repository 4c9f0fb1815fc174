"""Ranks and trainers that join, leave, wait and are replaced."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any
from unittest.mock import patch

import pytest

from dmls_ray.cluster.messages import ExpectedTrainer, RankDeath
from dmls_ray.cluster.scheduler.attempt import now
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.cluster.scheduler.membership import MAX_FAILED_STARTS, RESTART_TIMEOUT_S, START_TIMEOUT_S
from dmls_ray.config.options import RunLimits
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RunAborted
from tests.cluster.scheduler.ranks import (
    attempt_of,
    card,
    follow,
    group,
    job,
    killer,
    on_machines,
    outcome_of,
    result,
    scenario,
    serving,
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
    broker, names = await group(2)
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
    broker, names = await group(2)
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
    await broker.end_trainer("one", "a")
    assert await mine is None
    assert list(broker.members.ranks) == [other]
    assert await broker.next_lease(await broker.join(card(0, "a", trainer="one"))) is None
    assert list(broker.members.ranks) == [other]


@scenario
async def test_a_run_whose_child_process_dies_starts_again_on_the_same_ranks() -> None:
    broker, (name,) = await group(1)
    await broker.submit(job("r"))
    lease = await taken_up(broker, name)
    assert await broker.finish(name, lease.lease_id, result(0, "killed", reason="exit code -11"))
    again = await taken_up(broker, name)
    await broker.finish(name, again.lease_id, result(0, "ok"))
    finished = (await broker.events("r"))[-1]
    assert finished.verdict.outcome is Outcome.OK
    assert [attempt.reason for attempt in finished.earlier] == ["1 of 1 ranks died: exit code -11"]


@scenario
async def test_a_run_whose_machine_is_back_in_time_goes_on() -> None:
    broker = Broker(trainers(a=1, b=1), limits=RunLimits(wait_for_ranks=5))
    waiting = await on_machines(broker, "a", "b")
    await broker.end_trainer("b", "b")
    await broker.submit(job("r", 2))
    await broker.expect("b.2", ExpectedTrainer(ranks=1, is_optional=True))
    back = dataclasses.replace(card(0, "b", trainer="b.2"), machine_order=1)
    lease = await broker.next_lease(await broker.join(back))
    assert lease.rank.machines == ("a", "b")
    assert (await next(iter(waiting.values()))).rank.rank == 0


async def abort_reason(broker: Broker, run_id: str) -> str:
    last = (await follow(broker, run_id))[-1]
    return last.reason


def on_host(**more: Any) -> dict[str, ExpectedTrainer]:
    return {"t.0": ExpectedTrainer(ranks=2, machine="host-1", **more)}


@scenario
async def test_ranks_that_die_before_they_can_serve_end_the_sweep_with_their_machine_and_the_cause() -> None:
    broker = Broker(on_host())
    await broker.submit(job("r"))
    for _ in range(MAX_FAILED_STARTS):
        await broker.ranks_failed("t.0", {0: RankDeath(), 1: RankDeath(memory="Ray's memory monitor ended it")})
    assert await abort_reason(broker, "r") == (
        "2 ranks on host-1 died before they could serve (Ray's memory monitor ended it), 4 times in a row"
    )
    await broker.submit(job("s"))
    assert "died before they could serve" in await abort_reason(broker, "s")


@scenario
async def test_the_death_of_a_rank_that_the_broker_has_killed_is_no_failed_start() -> None:
    broker = Broker(trainers(t=1), limits=RunLimits(stall_timeout=1, max_retries=0))
    for number in range(2 * MAX_FAILED_STARTS):
        name = await broker.join(card(0, group=number))
        await broker.submit(job(f"{number}"))
        await taken_up(broker, name)
        assert await outcome_of(broker, f"{number}") == "timeout"
        await broker.ranks_failed("t", {0: RankDeath()})
    assert broker.dispatcher.aborted is None


@scenario
async def test_ranks_that_do_not_come_back_end_all_runs_and_another_start_of_the_sweep_may_help() -> None:
    limits = RunLimits(stall_timeout=1, max_retries=0)
    broker = Broker(on_host(), limits=limits, end_process=killer([], works=False))
    names = [await broker.join(card(index, trainer="t.0")) for index in range(2)]
    await broker.submit(job("r", 2))
    for name in names:
        await soon(taken_up(broker, name))
    assert await outcome_of(broker, "r") == "timeout"
    began = now()
    await broker.submit(job("s"))
    assert (await follow(broker, "s"))[-1] == RunAborted(
        reason="2 of 2 ranks on host-1 did not come back within 120 s", is_lost=True
    )
    assert now() - began < RESTART_TIMEOUT_S + 10


@scenario
async def test_a_trainer_that_finds_no_free_resources_ends_the_sweep_after_a_while() -> None:
    for wait_for_ranks, expected_s in ((60.0, START_TIMEOUT_S), (7200.0, 7200.0)):
        broker = Broker(on_host(), limits=RunLimits(wait_for_ranks=wait_for_ranks))
        began = now()
        await broker.submit(job("r"))
        assert await abort_reason(broker, "r") == (
            f"2 of 2 ranks on host-1 did not start within {expected_s:g} s; a longer --wait-for-ranks waits for a full "
            "cluster"
        )
        assert expected_s < now() - began < expected_s + 2


@scenario
async def test_the_sweep_continues_without_a_machine_that_joined_later_and_whose_ranks_die() -> None:
    late = ExpectedTrainer(ranks=1, machine="host-2", is_optional=True)
    broker = Broker(trainers(t=1) | {"late": late}, limits=RunLimits(wait_for_ranks=0))
    await serving(broker, card(0))
    await broker.submit(job("pair", 2))
    for _ in range(MAX_FAILED_STARTS):
        assert not await broker.refusals()
        await broker.ranks_failed("late", {0: RankDeath()})
    assert "1 rank on host-2 died before they could serve" in (await broker.refusals())["late"]
    assert await outcome_of(broker, "pair") == "skipped"
    await broker.submit(job("alone"))
    assert await outcome_of(broker, "alone") == "ok"


@scenario
async def test_runs_end_if_the_clocks_of_the_scheduler_fail() -> None:
    broker = Broker(trainers(t=1))
    with patch.object(broker.members.trainers["t"], "timeout", side_effect=ZeroDivisionError("no")):
        await broker.submit(job("r"))
        assert await abort_reason(broker, "r") == "the scheduler failed: ZeroDivisionError: no"
        with pytest.raises(ZeroDivisionError):
            await broker.dispatcher._watching
