"""The order of runs, and the ranks and machines that each run takes."""

from __future__ import annotations

import asyncio

from dmls_ray.cluster.messages import ExpectedTrainer, RankDeath, RankRegistration
from dmls_ray.cluster.scheduler.attempt import now
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.options import RunLimits
from tests.cluster.scheduler.ranks import (
    attempt_of,
    card,
    end_of,
    follow,
    group,
    job,
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
            await broker.finish(name, lease.lease_id, result(lease.rank.rank))


@scenario
async def test_a_run_that_is_run_again_comes_before_those_that_wait() -> None:
    broker = Broker(trainers(t=1))
    waiting = await soon(broker.next_lease(await broker.join(card(0))))
    for run_id in ("first", "second"):
        await broker.submit(job(run_id))
    lease = await waiting
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
async def test_a_run_that_asks_for_two_machines_gets_and_reports_two_and_the_first_ones_come_first() -> None:
    broker = Broker(trainers(a=1, b=1, c=1))
    waiting = await on_machines(broker, "a", "b", "c")
    await broker.submit(job("r", machines=2, ranks_per_machine=1))
    await asyncio.sleep(0)
    *served, third = waiting
    leases = [waiting[name].result() for name in served]
    assert [lease.rank.machines for lease in leases] == [("a", "b")] * 2
    assert [lease.rank.rank for lease in leases] == [0, 1]
    assert not waiting[third].done()
    for name, lease in zip(served, leases, strict=True):
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


@scenario
async def test_a_run_whose_rank_dies_every_time_is_killed() -> None:
    broker = Broker(trainers(t=1), limits=RunLimits(max_retries=1))
    await broker.submit(job("r"))
    for number in range(2):
        await taken_up(broker, await broker.join(card(0, group=number)))
        await broker.ranks_failed("t", {0: RankDeath()})
    events = await follow(broker, "r")
    done = events[-1]
    assert (done.verdict.outcome.value, done.verdict.reason, done.attempts) == ("killed", "1 of 1 ranks died", 2)
    assert [(item.attempt, item.outcome) for item in done.earlier] == [(1, "killed")]


@scenario
async def test_a_rank_that_failed_while_others_wait_for_it_must_go_and_is_not_run_again() -> None:
    broker, names = await group(2)
    leases = [await soon(broker.next_lease(name)) for name in names]
    await broker.submit(job("r", 2))
    lease_id = (await leases[1]).lease_id
    assert not await broker.finish(names[1], lease_id, result(1, "error", reason="cause"))
    # Its process ends, Train restarts the group, and the rank that waited sends nothing.
    for index in range(2):
        await broker.join(card(index, group=1))
    done = await end_of(broker, "r")
    assert (done.verdict.outcome.value, done.verdict.reason, done.attempts) == ("error", "cause", 1)


@scenario
async def test_an_answer_and_an_error_are_never_tried_again() -> None:
    broker, (name,) = await group(1, limits=RunLimits(max_retries=5))
    for outcome in ("oom", "diverged", "error", "skipped"):
        await broker.submit(job(outcome))
        lease = await taken_up(broker, name)
        await broker.finish(name, lease.lease_id, result(0, outcome, reason="why"))
        done = await end_of(broker, outcome)
        assert (done.verdict.outcome.value, done.attempts, done.earlier) == (outcome, 1, ())


@scenario
async def test_a_rank_that_died_before_it_took_its_lease_up_costs_the_run_no_retry() -> None:
    broker = Broker(trainers(t=1), limits=RunLimits(max_retries=0))
    await broker.submit(job("r"))
    await broker.next_lease(await broker.join(card(0)))
    name = await broker.join(card(0, group=1))
    lease = await taken_up(broker, name)
    await broker.finish(name, lease.lease_id, result(0))
    done = await end_of(broker, "r")
    assert (done.verdict.outcome.value, done.attempts) == ("ok", 2)


@scenario
async def test_a_rank_that_ray_ended_for_memory_is_out_of_memory_and_one_that_just_died_is_killed() -> None:
    for memory, outcome in (("Ray's memory monitor ended it", "oom"), ("", "killed")):
        broker = Broker(trainers(t=1), limits=RunLimits(max_retries=0))
        await broker.submit(job("r"))
        await taken_up(broker, await broker.join(card(0)))
        await broker.ranks_failed("t", {0: RankDeath(memory=memory)})
        assert await outcome_of(broker, "r") == outcome


@scenario
async def test_a_trial_is_given_up_after_equal_failures_in_a_row_and_others_are_not() -> None:
    broker, (name,) = await group(1, limits=RunLimits(give_up_after=2))

    async def ends(run_id: str, outcome: str, reason: str) -> tuple[str, str]:
        await broker.submit(job(run_id))
        if not await broker.given_up(run_id.partition("-")[0]):
            lease = await taken_up(broker, name)
            await broker.finish(name, lease.lease_id, result(0, outcome, reason=reason))
        done = await end_of(broker, run_id)
        return done.verdict.outcome.value, done.verdict.reason

    await ends("a-0", "error", "ValueError: 3 is wrong")
    await ends("a-1", "error", "KeyError: x")
    await ends("a-2", "error", "KeyError: y")
    assert await ends("a-3", "ok", "") == ("skipped", "given up after 2 equal failures (error: KeyError)")
    assert (await ends("b-0", "diverged", "the loss is not finite"))[0] == "diverged"
    assert (await ends("b-1", "diverged", "the loss is not finite"))[0] == "diverged"
    assert (await ends("b-2", "diverged", "the loss is not finite"))[0] == "diverged"


@scenario
async def test_a_run_whose_rank_was_only_replaced_next_to_one_that_died_is_not_charged_for_it() -> None:
    broker, names = await group(2, exclusive=False, limits=RunLimits(max_retries=0))
    for run_id in ("dies", "neighbour"):
        await broker.submit(job(run_id))
    await asyncio.gather(*(taken_up(broker, name) for name in names))
    await broker.ranks_failed("t", {0: RankDeath()})
    assert await outcome_of(broker, "dies") == "killed"
    await serving(broker, card(0, group=1), card(1, group=1))
    last = await end_of(broker, "neighbour")
    assert (last.verdict.outcome.value, last.attempts) == ("ok", 2)


@scenario
async def test_a_rank_that_the_kernel_killed_for_memory_is_out_of_memory_and_its_replaced_neighbour_is_not() -> None:
    async def count(card: RankRegistration) -> int:
        return 1

    broker, names = await group(2, exclusive=False, oom_kills_on=count)
    for run_id in ("large", "neighbour"):
        await broker.submit(job(run_id))
    await asyncio.gather(*(taken_up(broker, name, oom_kills=0) for name in names))
    await broker.ranks_failed("t", {0: RankDeath()})
    large = await end_of(broker, "large")
    reason = "1 of 1 ranks died: out of memory, the kernel ended 1 process on a"
    assert (large.verdict.outcome.value, large.verdict.reason, large.attempts) == ("oom", reason, 1)
    await serving(broker, *(card(index, group=1) for index in range(2)))
    assert await outcome_of(broker, "neighbour") == "ok"


@scenario
async def test_a_machine_that_leaves_costs_the_run_no_retry_and_those_after_it_wait_once() -> None:
    broker = Broker(trainers(a=1, b=1), limits=RunLimits(max_retries=0, wait_for_ranks=0.5))
    waiting = await on_machines(broker, "a", "b")
    await broker.submit(job("r-0", 2))
    (first, _) = waiting
    lease = await waiting[first]
    await broker.begun(first, lease.lease_id, 0)
    await broker.end_trainer("b", "b")
    await broker.finish(first, lease.lease_id, result(0, "error", is_symptom=True))
    began = now()
    again = await soon(broker.next_lease(first))
    done = await end_of(broker, "r-0")
    assert now() - began > 0.3
    assert (done.verdict.outcome.value, done.attempts) == ("skipped", 1)
    assert "world_size=2 found only 1 ranks since b left after 0.5 s" in done.verdict.reason
    assert done.earlier[0].reason == "1 of 2 ranks died: b has left"
    began = now()
    await broker.submit(job("r-1", 2))
    assert await outcome_of(broker, "r-1") == "skipped"
    assert now() - began < 0.3, "the wait is over for all that come after it"
    await broker.submit(job("s"))
    assert attempt_of(await again) == "s/1", "what fits goes on"
