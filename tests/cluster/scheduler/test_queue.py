"""The order of runs, and the ranks and machines that each run takes."""

from __future__ import annotations

import asyncio

from dmls_ray.cluster.messages import ExpectedTrainer, Lease
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.run_limits import RunLimits
from tests.cluster.scheduler.ranks import (
    attempt_of,
    card,
    end_of,
    follow,
    job,
    on_machines,
    result,
    scenario,
    serving,
    soon,
    taken_up,
    trainers,
)


@scenario
async def test_bench_mode_leases_to_one_run_at_a_time_and_search_mode_fills_the_group() -> None:
    for exclusive, under_way in ((True, 1), (False, 2)):
        broker = Broker(trainers(t=2), exclusive=exclusive)
        waiting = [await soon(broker.next_lease(await broker.join(card(index)))) for index in range(2)]
        for number in range(2):
            await broker.submit(job(f"r{number}"))
        await asyncio.sleep(0)
        assert sum(task.done() for task in waiting) == under_way
        for task in waiting:
            task.cancel()


@scenario
async def test_equal_runs_go_on_the_same_machine_whichever_of_its_ranks_is_quicker() -> None:
    # At the start, and after a run over both: "b" asks first, and must not get what belongs on "a".
    broker = Broker(trainers(a=1, b=1))
    first, second = [await broker.join(card(0, machine, trainer=machine)) for machine in "ab"]
    for number in range(2):
        await broker.submit(job(f"r{number}"))
        neighbour = await soon(broker.next_lease(second))
        assert not neighbour.done(), "the other rank is about to ask"
        lease = await taken_up(broker, first)
        assert (attempt_of(lease), lease.rank.machine) == (f"r{number}/1", "a")
        await broker.finish(first, lease.lease_id, result(0))
        both = await soon(broker.next_lease(first))
        await broker.submit(job(f"both{number}", 2))
        for name, task in ((first, both), (second, neighbour)):
            lease = await task
            assert isinstance(lease, Lease)
            await broker.finish(name, lease.lease_id, result(lease.rank.rank))


@scenario
async def test_a_run_that_is_run_again_comes_before_those_that_wait() -> None:
    broker = Broker(trainers(t=1))
    waiting = await soon(broker.next_lease(await broker.join(card(0))))
    for run_id in ("first", "second"):
        await broker.submit(job(run_id))
    lease = await waiting
    assert lease is not None
    assert attempt_of(lease) == "first/1"
    log = await serving(broker, card(0, group=1))
    await follow(broker, "first")
    await follow(broker, "second")
    assert [attempt_of(lease) for lease in log] == ["first/2", "second/1"]


@scenario
async def test_a_run_that_is_proposed_twice_is_run_for_the_first_that_asked() -> None:
    broker = Broker(trainers(t=1), exclusive=False)
    assert await broker.submit(job("r"), owner="one")
    assert not await broker.submit(job("r"), owner="two")
    assert await broker.submit(job("r"), owner="one")


@scenario
async def test_a_run_that_asks_for_two_machines_gets_two_and_the_first_ones_come_first() -> None:
    broker = Broker(trainers(a=1, b=1, c=1))
    waiting = await on_machines(broker, "a", "b", "c")
    await broker.submit(job("r", machines=2, ranks_per_machine=1))
    await asyncio.sleep(0)
    first, second, third = waiting.values()
    assert [task.result().rank.machines for task in (first, second)] == [("a", "b")] * 2
    assert (first.result().rank.rank, second.result().rank.rank) == (0, 1)
    assert not third.done()
    third.cancel()


@scenario
async def test_a_run_on_two_machines_is_not_put_on_one_that_has_room_for_all() -> None:
    broker = Broker(trainers(t=2), limits=RunLimits(wait_for_ranks=0.2))
    for index in range(2):
        await soon(broker.next_lease(await broker.join(card(index))))
    await broker.submit(job("r", machines=2, ranks_per_machine=1))
    done = await end_of(broker, "r")
    assert (done.verdict.outcome.value, done.attempts) == ("skipped", 0)
    assert "machines=2 ranks_per_machine=1 finds 2 ranks, after 0.2 s (wait_for_ranks)" in done.verdict.reason


@scenario
async def test_a_run_reports_its_machines_the_first_ranks_first() -> None:
    broker = Broker(trainers(a=1, b=1))
    waiting = await on_machines(broker, "a", "b")
    await broker.submit(job("r", 2))
    for name, task in waiting.items():
        lease = await task
        await broker.finish(name, lease.lease_id, result(lease.rank.rank))
    assert (await end_of(broker, "r")).machines == ({"host": "a"}, {"host": "b"})


@scenario
async def test_runs_that_fit_do_not_wait_for_a_machine_that_is_still_coming() -> None:
    broker = Broker(trainers(a=1))
    waiting = await on_machines(broker, "a")
    await broker.expect("b", ExpectedTrainer(ranks=1, is_optional=True))
    await broker.submit(job("r"))
    (task,) = waiting.values()
    assert attempt_of(await task) == "r/1"
