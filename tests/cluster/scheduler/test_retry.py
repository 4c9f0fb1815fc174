"""The cause of a lost run, and whether the run is tried again."""

from __future__ import annotations

import asyncio

from dmls_ray.cluster.messages import RankDeath, RankRegistration
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.cluster.scheduler.clock import now
from dmls_ray.config.run_limits import RunLimits
from tests.cluster.scheduler.ranks import (
    attempt_of,
    card,
    end_of,
    follow,
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
async def test_a_run_whose_rank_dies_every_time_is_killed() -> None:
    broker = Broker(trainers(t=1), limits=RunLimits(max_retries=1))
    await broker.submit(job("r"))
    for number in range(2):
        await taken_up(broker, await broker.join(card(0, group=number)))
    await broker.join(card(0, group=2))
    events = await follow(broker, "r")
    done = events[-1]
    assert (done.verdict.outcome.value, done.verdict.reason, done.attempts) == ("killed", "1 of 1 ranks died", 2)
    assert [(item.attempt, item.outcome) for item in done.earlier] == [(1, "killed")]


@scenario
async def test_a_rank_that_failed_while_others_wait_for_it_must_go_and_is_not_run_again() -> None:
    broker = Broker(trainers(t=2))
    names = [await broker.join(card(index)) for index in range(2)]
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
    broker = Broker(trainers(t=1), limits=RunLimits(max_retries=5))
    name = await broker.join(card(0))
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
async def test_a_rank_killed_while_the_kernel_wanted_memory_is_out_of_memory() -> None:
    broker = Broker(trainers(t=1))
    await broker.submit(job("r"))
    await taken_up(broker, await broker.join(card(0, oom_kills=3)), oom_kills=3)
    await broker.join(card(0, group=1, oom_kills=4))
    done = await end_of(broker, "r")
    reason = "1 of 1 ranks died: out of memory, the kernel ended 1 process on a"
    assert (done.verdict.outcome.value, done.verdict.reason, done.attempts) == ("oom", reason, 1)


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
    broker = Broker(trainers(t=1), limits=RunLimits(give_up_after=2))
    name = await broker.join(card(0))

    async def ends(run_id: str, outcome: str, reason: str) -> tuple[str, str]:
        await broker.submit(job(run_id))
        if broker.queue or broker.members.ranks[name].attempt or not broker.streams._unread[run_id].qsize():
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
    broker = Broker(trainers(t=2), exclusive=False, limits=RunLimits(max_retries=0))
    names = [await broker.join(card(index)) for index in range(2)]
    for run_id in ("dies", "neighbour"):
        await broker.submit(job(run_id))
    await asyncio.gather(*(taken_up(broker, name) for name in names))
    await broker.ranks_failed("t", {0: RankDeath()})
    assert await outcome_of(broker, "dies") == "killed"
    await serving(broker, card(0, group=1), card(1, group=1))
    last = await end_of(broker, "neighbour")
    assert (last.verdict.outcome.value, last.attempts) == ("ok", 2)


@scenario
async def test_what_ended_its_neighbour_is_no_evidence_of_a_replaced_ranks_end() -> None:
    async def count(card: RankRegistration) -> int:
        return 1

    broker = Broker(trainers(t=2), exclusive=False, oom_kills_on=count)
    names = [await broker.join(card(index)) for index in range(2)]
    for run_id in ("large", "neighbour"):
        await broker.submit(job(run_id))
    await asyncio.gather(*(taken_up(broker, name, oom_kills=0) for name in names))
    await broker.ranks_failed("t", {0: RankDeath()})
    assert await outcome_of(broker, "large") == "oom"
    await serving(broker, *(card(index, group=1, oom_kills=1) for index in range(2)))
    assert await outcome_of(broker, "neighbour") == "ok"


@scenario
async def test_a_machine_that_leaves_costs_the_run_no_retry_and_those_after_it_wait_once() -> None:
    broker = Broker(trainers(a=1, b=1), limits=RunLimits(max_retries=0, wait_for_ranks=0.5))
    waiting = await on_machines(broker, "a", "b")
    await broker.submit(job("r-0", 2))
    (first, _) = waiting
    lease = await waiting[first]
    await broker.begun(first, lease.lease_id, 0)
    await broker.end_trainer("b", left="b")
    await broker.finish(first, lease.lease_id, result(0, "error", is_symptom=True))
    began = now()
    again = await soon(broker.next_lease(first))
    done = await end_of(broker, "r-0")
    assert now() - began > 0.3
    assert (done.verdict.outcome.value, done.attempts) == ("skipped", 1)
    assert "world_size=2 finds 1 ranks since b left, after 0.5 s" in done.verdict.reason
    assert done.earlier[0].reason == "1 of 2 ranks died: b has left"
    began = now()
    await broker.submit(job("r-1", 2))
    assert await outcome_of(broker, "r-1") == "skipped"
    assert now() - began < 0.3, "the wait is over for all that come after it"
    await broker.submit(job("s"))
    assert attempt_of(await again) == "s/1", "what fits goes on"
