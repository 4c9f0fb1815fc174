"""Lanes: each measures a whole block, and leaves it to another one when it loses a machine."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

from dmls_ray.cluster.messages import ExpectedTrainer, Job, Lease
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.options import RunLimits
from tests.cluster.scheduler.ranks import (
    attempt_of,
    card,
    end_of,
    job,
    on_machines,
    outcome_of,
    result,
    scenario,
    serving,
    soon,
    taken_up,
)


def lanes(**numbers: int) -> dict[str, ExpectedTrainer]:
    """A trainer of one rank for each machine, with the number of its lane."""
    return {name: ExpectedTrainer(ranks=1, machine=name, lane=number) for name, number in numbers.items()}


def of_block(block: int, run_id: str = "", world_size: int = 1, near: str = "") -> Job:
    return dataclasses.replace(job(run_id or f"r-{block}", world_size), block=block, near=near)


async def leases_of(waiting: Mapping[str, asyncio.Task[Lease]]) -> list[str]:
    """`machine: run` of each rank that has a lease."""
    await asyncio.sleep(0)
    leases = [task.result() for task in waiting.values() if task.done()]
    return [f"{lease.rank.machine}: {attempt_of(lease)}" for lease in leases]


@scenario
async def test_each_lane_gets_a_block_and_the_runs_of_a_block_go_to_its_lane() -> None:
    broker = Broker(lanes(a=1, b=2))
    log = await serving(broker, *(card(0, machine, trainer=machine) for machine in "ab"))
    for number in range(3):
        for block in (0, 1):
            await broker.submit(of_block(block, f"r{number}-{block}"))
    for number in range(3):
        ends = [await end_of(broker, f"r{number}-{block}") for block in (0, 1)]
        assert [end.lane for end in ends] == [1, 2]
    assert {attempt_of(lease).partition("-")[2]: lease.rank.machine for lease in log} == {"0/1": "a", "1/1": "b"}


@scenario
async def test_a_block_waits_until_the_block_of_a_lane_has_ended() -> None:
    broker = Broker(lanes(a=1))
    waiting = await on_machines(broker, "a")
    (name,) = waiting
    for block in (0, 1):
        await broker.submit(of_block(block))
    lease = await waiting[name]
    await broker.begun(name, lease.lease_id, 0)
    await broker.finish(name, lease.lease_id, result())
    waiting[name] = await soon(broker.next_lease(name))
    assert not waiting[name].done(), "block 0 may have further runs"
    await broker.end_block(0)
    assert await leases_of(waiting) == ["a: r-1/1"]


@scenario
async def test_a_run_waits_for_the_ranks_of_its_own_lane_alone() -> None:
    broker = Broker(lanes(a=1, b=2))
    waiting = await on_machines(broker, "a")
    await broker.submit(of_block(0))
    assert await leases_of(waiting) == ["a: r-0/1"]


@scenario
async def test_a_block_goes_to_the_machine_where_its_earlier_runs_were() -> None:
    broker = Broker(lanes(a=1, b=2))
    waiting = await on_machines(broker, "a", "b")
    await broker.submit(of_block(5, near="b"))
    assert await leases_of(waiting) == ["b: r-5/1"]


@scenario
async def test_a_lane_that_lost_a_machine_leaves_its_block_to_another() -> None:
    broker = Broker(lanes(a=1, b=1, c=2, d=2), limits=RunLimits(max_retries=0))
    await serving(broker, *(card(0, machine, trainer=machine) for machine in "cd"))
    first = await broker.join(card(0, "a", trainer="a"))
    second = await soon(broker.next_lease(await broker.join(card(0, "b", trainer="b"))))
    await soon(broker.next_lease(first))
    await broker.submit(of_block(0, "wide", world_size=2))
    await broker.submit(of_block(0, "narrow"))
    lease = await second
    await broker.begun(first, lease.lease_id, 0)
    await broker.end_trainer("b", "b")
    await broker.finish(first, lease.lease_id, result(0, "error", is_symptom=True))
    wide, narrow = [await end_of(broker, run_id) for run_id in ("wide", "narrow")]
    assert (wide.verdict.outcome.value, wide.lane, wide.attempts) == ("ok", 2, 2)
    assert (narrow.verdict.outcome.value, narrow.lane) == ("ok", 2)


@scenario
async def test_a_lane_whose_machine_joined_later_serves_once_its_ranks_are_there() -> None:
    broker = Broker(lanes(a=1))
    waiting = await on_machines(broker, "a")
    await broker.expect("b", ExpectedTrainer(ranks=1, machine="b", is_optional=True, lane=2))
    for block in (0, 1):
        await broker.submit(of_block(block))
    assert await leases_of(waiting) == ["a: r-0/1"]
    await serving(broker, card(0, "b", trainer="b"))
    assert (await end_of(broker, "r-1")).lane == 2


@scenario
async def test_without_any_whole_lane_runs_wait_for_machines_and_are_skipped() -> None:
    broker = Broker(lanes(a=1, b=2), limits=RunLimits(wait_for_ranks=5))
    await on_machines(broker, "a", "b")
    for machine in "ab":
        await broker.end_trainer(machine, machine)
    await broker.submit(of_block(0))
    assert await outcome_of(broker, "r-0") == "skipped"


@scenario
async def test_the_ranks_of_a_lane_serve_one_run_at_a_time() -> None:
    broker = Broker({"t": ExpectedTrainer(ranks=2)})
    names = [await broker.join(card(index)) for index in range(2)]
    for run_id in ("one", "two"):
        await broker.submit(of_block(0, run_id))
    other = await soon(broker.next_lease(names[1]))
    lease = await taken_up(broker, names[0])
    assert attempt_of(lease) == "one/1"
    assert not other.done()


@scenario
async def test_a_block_goes_to_the_lane_that_it_asks_for_and_elsewhere_where_that_lost_its_machine() -> None:
    broker = Broker(lanes(a=1, b=2))
    await serving(broker, *(card(0, machine, trainer=machine) for machine in "ab"))
    await broker.submit(dataclasses.replace(of_block(0), lane=2))
    assert (await end_of(broker, "r-0")).lane == 2
    await broker.end_block(0)
    await broker.end_trainer("b", "b")
    await broker.submit(dataclasses.replace(of_block(1), lane=2))
    assert (await end_of(broker, "r-1")).lane == 1
