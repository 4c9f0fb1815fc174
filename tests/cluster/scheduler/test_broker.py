"""The broker's rules, without Ray: ranks are coroutines here."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from unittest.mock import patch

from dmls_ray.cluster.messages import Job, Lease, Leave, RankRegistration
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.run_limits import RunLimits
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import (
    EpochEnded,
    RankResult,
    RunAborted,
    RunEvent,
    RunFinished,
    RunStarted,
    RunUnknown,
    is_last,
)
from dmls_ray.workloads.classification.config import TrialConfig


def card(index: int, machine: str = "a", trainer: str = "t", group: int = 0, oom_kills: int = 0) -> RankRegistration:
    return RankRegistration(
        trainer=trainer,
        group=str(group),
        index=index,
        machine=machine,
        pid=index,
        device="cpu",
        store=(machine, 1000 + index),
        oom_kills=oom_kills,
    )


def job(run_id: str, world_size: int = 1, **place: int) -> Job:
    config = TrialConfig(batch_per_rank=1, world_size=world_size, **place)
    return Job(
        run_id=run_id, trial_id=run_id.partition("-")[0], train="m:f", config=config, device="cpu", backend="gloo"
    )


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
        asyncio.run(asyncio.wait_for(test(), 10))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def soon(awaitable: Awaitable[Any]) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(awaitable)
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def serve(broker: Broker, name: str, log: list[Lease], outcome: str = "ok") -> None:
    while (lease := await broker.next_lease(name)) is not None:
        log.append(lease)
        await broker.emit(name, lease.lease_id, epoch(1))
        await broker.finish(name, lease.lease_id, result(lease.rank.rank, outcome))


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
    last = (await follow(broker, run_id))[-1]
    assert isinstance(last, RunFinished)
    return last


async def outcome_of(broker: Broker, run_id: str) -> str:
    return (await end_of(broker, run_id)).verdict.outcome.value


@scenario
async def test_a_run_takes_its_ranks_tells_its_events_and_gives_them_back() -> None:
    broker, log = Broker({"t": 2}), []  # type: ignore[var-annotated]
    names = [await broker.join(card(index)) for index in range(2)]
    ranks = [asyncio.ensure_future(serve(broker, name, log)) for name in names]
    for number, size in enumerate((2, 1, 2)):
        await broker.submit(job(f"r{number}", size))
        events = await follow(broker, f"r{number}")
        assert events[0] == RunStarted(attempt=1)
        assert sum(isinstance(event, EpochEnded) for event in events) == size
        assert events[-1].verdict.outcome.value == "ok"
        assert [item.rank for item in events[-1].results] == list(range(size))
    told = sorted((attempt_of(lease), lease.rank.rank, lease.rank.backend) for lease in log)
    pair = [(0, "gloo"), (1, "gloo")]
    assert told == [(f"r{number}/1", *part) for number, parts in enumerate((pair, [(0, None)], pair)) for part in parts]
    assert {lease.store for lease in log} == {("a", 1000)}, "all meet at the leader's store"
    await broker.close()
    await asyncio.gather(*ranks)


@scenario
async def test_no_run_starts_before_all_expected_ranks_are_there() -> None:
    broker = Broker({"t": 2})
    first = await soon(broker.next_lease(await broker.join(card(0))))
    await broker.submit(job("r"))
    assert not first.done()
    await soon(broker.next_lease(await broker.join(card(1))))
    assert (await first).rank.rank == 0


@scenario
async def test_bench_mode_leases_to_one_run_at_a_time_and_search_mode_fills_the_group() -> None:
    for exclusive, under_way in ((True, 1), (False, 2)):
        broker = Broker({"t": 2}, exclusive=exclusive)
        waiting = [await soon(broker.next_lease(await broker.join(card(index)))) for index in range(2)]
        for number in range(2):
            await broker.submit(job(f"r{number}"))
        await asyncio.sleep(0)
        assert sum(task.done() for task in waiting) == under_way
        for task in waiting:
            task.cancel()


@scenario
async def test_a_run_is_packed_on_one_machine_where_it_fits_and_spread_where_it_does_not() -> None:
    broker = Broker({"a": 1, "b": 2, "c": 1})
    machines = {0: "a", 1: "b", 2: "b", 3: "c"}
    waiting = {}
    for index, machine in machines.items():
        name = await broker.join(card(index, machine, trainer=machine))
        waiting[index] = await soon(broker.next_lease(name))
    await broker.submit(job("pair", 2))
    await asyncio.sleep(0)
    assert {index for index, task in waiting.items() if task.done()} == {1, 2}
    await broker.cancel("pair")
    for task in waiting.values():
        task.cancel()


@scenario
async def test_runs_that_are_alike_go_on_the_same_machine_whichever_of_its_ranks_is_quicker() -> None:
    # At the start, and after a run over both: "b" asks first, and must not get what belongs on "a".
    broker = Broker({"a": 1, "b": 1})
    first, second = [await broker.join(card(0, machine, trainer=machine)) for machine in "ab"]
    for number in range(2):
        await broker.submit(job(f"r{number}"))
        beside = await soon(broker.next_lease(second))
        assert not beside.done(), "the other rank is about to ask"
        lease = await taken_up(broker, first)
        assert (attempt_of(lease), lease.rank.machine) == (f"r{number}/1", "a")
        await broker.finish(first, lease.lease_id, result(0))
        both = await soon(broker.next_lease(first))
        await broker.submit(job(f"both{number}", 2))
        for name, task in ((first, both), (second, beside)):
            lease = await task
            assert isinstance(lease, Lease)
            await broker.finish(name, lease.lease_id, result(lease.rank.rank))


@scenario
async def test_a_rank_that_never_asks_again_is_waited_for_once_and_not_for_ever() -> None:
    broker = Broker({"t": 2})
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
async def test_a_rank_that_hangs_after_its_run_is_ended_and_runs_go_on_with_its_successor() -> None:
    ended: list[int] = []
    limits = RunLimits(stall_timeout=0.3)
    broker = Broker({"a": 1, "b": 1}, limits=limits, end_process=lambda rank: ended.append(rank.pid))
    first, second = [await broker.join(card(index, "a", trainer=trainer)) for index, trainer in enumerate("ab")]
    waits = await soon(broker.next_lease(first))
    await broker.submit(job("both", 2))
    while not ended:
        await asyncio.sleep(0.05)
    assert ended == [1], "of those that wait for work none is"
    assert await broker.next_lease(second) == Leave(join_again=False)
    beside = await soon(broker.next_lease(await broker.join(card(1, "a", trainer="b", group=1))))
    assert [attempt_of(await task) for task in (waits, beside)] == ["both/1", "both/1"]


@scenario
async def test_a_rank_that_joins_again_was_lost_and_its_run_is_run_again_once() -> None:
    broker = Broker({"t": 2})
    names = [await broker.join(card(index)) for index in range(2)]
    leases = [await soon(broker.next_lease(name)) for name in names]
    await broker.submit(job("r", 2))
    lease = await leases[0]
    # Rank 1 dies; rank 0 comes back with a broken connection; Train restarts the group.
    gone = result(0, "error", reason="peer closed", is_symptom=True)
    assert await broker.finish(names[0], lease.lease_id, gone), "a rank that only lost its peer may stay"
    log: list[Lease] = []
    again = [await broker.join(card(index, group=1)) for index in range(2)]
    ranks = [asyncio.ensure_future(serve(broker, name, log)) for name in again]
    events = await follow(broker, "r")
    assert [event.attempt for event in events if isinstance(event, RunStarted)] == [1, 2]
    assert (events[-1].verdict.outcome.value, events[-1].attempts) == ("ok", 2)
    assert {attempt_of(item) for item in log} == {"r/2"}, "the second attempt meets under a name of its own"
    await broker.close()
    await asyncio.gather(*ranks)


@scenario
async def test_no_run_is_leased_to_a_rank_of_a_group_that_is_being_replaced() -> None:
    broker = Broker({"t": 2})
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
async def test_a_run_whose_rank_dies_every_time_is_killed() -> None:
    broker = Broker({"t": 1}, limits=RunLimits(max_retries=1))
    await broker.submit(job("r"))
    for number in range(2):
        await taken_up(broker, await broker.join(card(0, group=number)))
    await broker.join(card(0, group=2))
    events = await follow(broker, "r")
    done = events[-1]
    assert (done.verdict.outcome.value, done.verdict.reason, done.attempts) == ("killed", "1 of 1 ranks died", 2)
    assert [(item.attempt, item.outcome) for item in done.earlier] == [(1, "killed")]


@scenario
async def test_the_first_failure_of_its_own_is_the_cause_and_not_that_a_peer_is_gone() -> None:
    broker = Broker({"t": 2})
    names = [await broker.join(card(index)) for index in range(2)]
    leases = [await soon(broker.next_lease(name)) for name in names]
    await broker.submit(job("r", 2))
    lease_id = (await leases[1]).lease_id
    gone = result(0, "error", reason="peer closed", is_symptom=True)
    assert await broker.finish(names[0], lease_id, gone)
    cause = result(1, "oom", reason="cause", traceback="tb")
    assert await broker.finish(names[1], lease_id, cause), "nobody waits for it"
    done = await end_of(broker, "r")
    assert (done.verdict.outcome.value, done.verdict.reason, done.verdict.traceback) == ("oom", "cause", "tb")
    assert [item.rank for item in done.results] == [0, 1]
    assert len(broker._members.ranks) == 2


@scenario
async def test_a_rank_that_failed_while_others_wait_for_it_must_go_and_is_not_run_again() -> None:
    broker = Broker({"t": 2})
    names = [await broker.join(card(index)) for index in range(2)]
    leases = [await soon(broker.next_lease(name)) for name in names]
    await broker.submit(job("r", 2))
    lease_id = (await leases[1]).lease_id
    assert not await broker.finish(names[1], lease_id, result(1, "error", reason="cause"))
    # Its process ends, Train starts the group anew, and the rank that waited never says a word.
    for index in range(2):
        await broker.join(card(index, group=1))
    done = await end_of(broker, "r")
    assert (done.verdict.outcome.value, done.verdict.reason, done.attempts) == ("error", "cause", 1)


@scenario
async def test_what_a_lost_attempt_still_says_is_not_heard() -> None:
    broker = Broker({"t": 1})
    name = await broker.join(card(0))
    waiting = await soon(broker.next_lease(name))
    await broker.submit(job("r"))
    old = (await waiting).lease_id
    waiting = await soon(broker.next_lease(await broker.join(card(0, group=1))))
    await broker.finish(name, old, result(0))
    await broker.emit(name, old, epoch(9))
    assert attempt_of(await waiting) == "r/2"
    assert [type(event) for event in await broker.events("r")] == [RunStarted, RunStarted]


@scenario
async def test_a_trainer_that_ends_takes_its_ranks_and_wants_no_new_ones() -> None:
    broker = Broker({"t": 2})
    mine = await soon(broker.next_lease(await broker.join(card(0, "a", trainer="one"))))
    other = await broker.join(card(0, "b", trainer="two"))
    await broker.end_trainer("one")
    assert await mine is None
    assert list(broker._members.ranks) == [other]
    assert await broker.next_lease(await broker.join(card(0, "a", trainer="one"))) is None
    assert list(broker._members.ranks) == [other]


@scenario
async def test_a_group_that_breaks_tells_every_run_that_waits_and_those_to_come() -> None:
    broker = Broker({"t": 1})
    await broker.submit(job("before"))
    await broker.abort("no more ranks")
    await broker.submit(job("after"))
    for run_id in ("before", "after"):
        assert (await follow(broker, run_id))[-1] == RunAborted(reason="no more ranks")


@scenario
async def test_a_cancelled_run_is_not_leased() -> None:
    broker = Broker({"t": 1})
    await broker.submit(job("r0"))
    await broker.submit(job("r1"))
    await broker.cancel("r0")
    waiting = await soon(broker.next_lease(await broker.join(card(0))))
    assert attempt_of(await waiting) == "r1/1"


@scenario
async def test_nothing_is_kept_of_a_run_that_was_told() -> None:
    broker, log = Broker({"t": 1}), []  # type: ignore[var-annotated]
    rank = asyncio.ensure_future(serve(broker, await broker.join(card(0)), log))
    for number in range(200):
        await broker.submit(job(f"r{number}"))
        await follow(broker, f"r{number}")
        await broker.forget(f"r{number}")
    assert (
        len(broker._streams._streams),
        len(broker._core.attempts),
        len(broker._queue),
        len(broker._members.ranks),
    ) == (0, 0, 0, 1)
    await broker.close()
    await rank


@scenario
async def test_a_rank_that_was_given_up_is_to_end_and_one_of_another_broker_to_join_again() -> None:
    broker = Broker({"t": 1})
    old = await broker.join(card(0))
    await broker.join(card(0, group=1))
    assert await broker.next_lease(old) == Leave()
    assert await Broker({"t": 1}).next_lease(old) == Leave(join_again=True)


@scenario
async def test_a_run_that_is_run_again_comes_before_those_that_wait() -> None:
    broker = Broker({"t": 1})
    name, log = await broker.join(card(0)), list[Lease]()
    waiting = await soon(broker.next_lease(name))
    for run_id in ("first", "second"):
        await broker.submit(job(run_id))
    lease = await waiting
    assert lease is not None
    assert attempt_of(lease) == "first/1"
    again = await broker.join(card(0, group=1))
    task = await soon(serve(broker, again, log))
    await follow(broker, "first")
    await follow(broker, "second")
    assert [attempt_of(lease) for lease in log] == ["first/2", "second/1"]
    await broker.close()
    await task


@scenario
async def test_whoever_ends_the_group_learns_who_controls_its_trainers() -> None:
    broker = Broker({"t": 1})
    assert await broker.controllers() == {}
    await broker.controlled_by("t", "one")
    assert await broker.controllers() == {"t": "one"}


@scenario
async def test_a_run_without_progress_is_ended_with_its_ranks_and_run_again() -> None:
    ended: list[int] = []
    broker = Broker({"t": 2}, limits=RunLimits(stall_timeout=0.2), end_process=lambda card: ended.append(card.pid))
    names = [await broker.join(card(index)) for index in range(2)]
    await broker.submit(job("r", 2))
    for name in names:
        await soon(taken_up(broker, name))
    while len(ended) < 2:
        await asyncio.sleep(0.05)
    assert sorted(ended) == [0, 1]
    assert await broker.next_lease(names[0]) == Leave(), "what was given up must not serve on"
    log: list[Lease] = []
    again = [asyncio.ensure_future(serve(broker, await broker.join(card(n, group=1)), log)) for n in range(2)]
    done = await end_of(broker, "r")
    assert (done.verdict.outcome.value, done.attempts) == ("ok", 2)
    (first,) = done.earlier
    assert (first.outcome, first.reason) == ("timeout", "no progress for 0.2 s (stall_timeout)")
    await broker.close()
    await asyncio.gather(*again)


@scenario
async def test_any_sign_of_progress_counts_and_the_time_of_a_run_has_a_bound_of_its_own() -> None:
    broker = Broker({"t": 1}, limits=RunLimits(stall_timeout=0.7, run_timeout=1.5, max_retries=0))
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


@scenario
async def test_an_answer_and_an_error_are_never_tried_again() -> None:
    broker = Broker({"t": 1}, limits=RunLimits(max_retries=5))
    name = await broker.join(card(0))
    for outcome in ("oom", "diverged", "error", "skipped"):
        await broker.submit(job(outcome))
        lease = await taken_up(broker, name)
        await broker.finish(name, lease.lease_id, result(0, outcome, reason="why"))
        done = await end_of(broker, outcome)
        assert (done.verdict.outcome.value, done.attempts, done.earlier) == (outcome, 1, ())


@scenario
async def test_a_rank_that_died_before_it_took_its_lease_up_costs_the_run_no_retry() -> None:
    broker = Broker({"t": 1}, limits=RunLimits(max_retries=0))
    await broker.submit(job("r"))
    await broker.next_lease(await broker.join(card(0)))
    name = await broker.join(card(0, group=1))
    lease = await taken_up(broker, name)
    await broker.finish(name, lease.lease_id, result(0))
    done = await end_of(broker, "r")
    assert (done.verdict.outcome.value, done.attempts) == ("ok", 2)


@scenario
async def test_a_rank_that_always_dies_before_it_begins_is_not_waited_for_for_ever() -> None:
    broker = Broker({"t": 1}, limits=RunLimits(max_retries=1))
    await broker.submit(job("r"))
    for group in range(20):
        waiting = await soon(broker.next_lease(await broker.join(card(0, group=group))))
        if not waiting.done():
            break
    done = await end_of(broker, "r")
    assert (done.verdict.outcome.value, done.attempts) == ("killed", 7)


@scenario
async def test_a_rank_killed_while_the_kernel_wanted_memory_is_out_of_memory() -> None:
    broker = Broker({"t": 1})
    await broker.submit(job("r"))
    await taken_up(broker, await broker.join(card(0, oom_kills=3)), oom_kills=3)
    await broker.join(card(0, group=1, oom_kills=4))
    done = await end_of(broker, "r")
    reason = "1 of 1 ranks died: out of memory, the kernel ended 1 process on a"
    assert (done.verdict.outcome.value, done.verdict.reason, done.attempts) == ("oom", reason, 1)


@scenario
async def test_a_rank_that_ray_ended_for_memory_is_out_of_memory_and_one_that_just_died_is_killed() -> None:
    for memory, outcome in (("Ray's memory monitor ended it", "oom"), ("", "killed")):
        broker = Broker({"t": 1}, limits=RunLimits(max_retries=0))
        await broker.submit(job("r"))
        await taken_up(broker, await broker.join(card(0)))
        await broker.rank_failed("t", 0, memory=memory)
        assert await outcome_of(broker, "r") == outcome


@scenario
async def test_a_trial_is_given_up_after_equal_failures_in_a_row_and_others_are_not() -> None:
    broker = Broker({"t": 1}, limits=RunLimits(give_up_after=2))
    name = await broker.join(card(0))

    async def ends(run_id: str, outcome: str, reason: str) -> tuple[str, str]:
        await broker.submit(job(run_id))
        if broker._queue or broker._members.ranks[name].attempt or not broker._streams._streams[run_id].events:
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
async def test_a_trainer_with_a_rank_that_grew_too_large_is_replaced_once_all_its_ranks_are_idle() -> None:
    broker = Broker({"t": 2}, limits=RunLimits(recycle_above_mib=100.0))
    names = [await broker.join(card(index)) for index in range(2)]
    await broker.submit(job("r", 2))
    leases = await asyncio.gather(*(taken_up(broker, name) for name in names))
    large = result(0, "ok", rss_mib=101.0)
    await broker.finish(names[0], leases[0].lease_id, large)
    first = await soon(broker.next_lease(names[0]))
    assert not first.done(), "the other rank is busy yet"
    await broker.finish(names[1], leases[1].lease_id, result(1, "ok", rss_mib=10.0))
    assert await outcome_of(broker, "r") == "ok"
    await broker.submit(job("next"))
    assert await broker.next_lease(names[1]) == Leave()
    assert await first == Leave()
    log: list[Lease] = []
    again = [asyncio.ensure_future(serve(broker, await broker.join(card(n, group=1)), log)) for n in range(2)]
    assert (await end_of(broker, "next")).attempts == 1
    await broker.close()
    await asyncio.gather(*again)


@scenario
async def test_a_rank_that_grew_too_large_is_let_go_also_where_it_asks_before_its_result_is_here() -> None:
    # The broker may take calls in another order than they were made.
    broker = Broker({"t": 2}, limits=RunLimits(recycle_above_mib=100.0))
    names = [await broker.join(card(index)) for index in range(2)]
    beside = await soon(broker.next_lease(names[1]))
    await broker.submit(job("r"))
    lease = await taken_up(broker, names[0])
    asks = await soon(broker.next_lease(names[0]))
    await broker.finish(names[0], lease.lease_id, result(0, "ok", rss_mib=101.0))
    assert [await asks, await beside] == [Leave(), Leave()]


@scenario
async def test_a_rank_that_grew_too_large_is_let_go_where_another_machine_ends_their_run_last() -> None:
    broker = Broker({"a": 1, "b": 1}, limits=RunLimits(recycle_above_mib=100.0))
    names = [await broker.join(card(0, machine, trainer=machine)) for machine in "ab"]
    await broker.submit(job("r", 2))
    leases = await asyncio.gather(*(taken_up(broker, name) for name in names))
    await broker.finish(names[0], leases[0].lease_id, result(0, "ok", rss_mib=101.0))
    asks = await soon(broker.next_lease(names[0]))
    await broker.finish(names[1], leases[1].lease_id, result(1, "ok", rss_mib=10.0))
    assert await asks == Leave()
    await broker.submit(job("next"))
    beside = await soon(broker.next_lease(names[1]))
    assert not beside.done(), "it belongs on the other machine, whose rank will be back"
    beside.cancel()


@scenario
async def test_a_run_that_is_submitted_again_is_told_from_its_start_and_not_run_twice() -> None:
    broker, log = Broker({"t": 1}), list[Lease]()
    rank = asyncio.ensure_future(serve(broker, await broker.join(card(0)), log))
    await broker.submit(job("r"))
    first = await follow(broker, "r")
    await broker.submit(job("r"))
    assert await follow(broker, "r") == first
    assert len(log) == 1
    await broker.close()
    await rank


@scenario
async def test_a_broker_that_follows_a_dead_one_says_that_it_does_not_know_a_run() -> None:
    assert await Broker({"t": 1}).events("r") == [RunUnknown()]


@scenario
async def test_a_run_whose_rank_was_only_replaced_beside_one_that_died_is_not_charged_for_it() -> None:
    broker = Broker({"t": 2}, exclusive=False, limits=RunLimits(max_retries=0))
    names = [await broker.join(card(index)) for index in range(2)]
    for run_id in ("dies", "beside"):
        await broker.submit(job(run_id))
    await asyncio.gather(*(taken_up(broker, name) for name in names))
    await broker.rank_failed("t", 0)
    assert await outcome_of(broker, "dies") == "killed"
    log: list[Lease] = []
    fresh = [await broker.join(card(index, group=1)) for index in range(2)]
    ranks = [asyncio.ensure_future(serve(broker, name, log)) for name in fresh]
    last = await end_of(broker, "beside")
    assert (last.verdict.outcome.value, last.attempts) == ("ok", 2)
    await broker.close()
    await asyncio.gather(*ranks)


def asking(run_id: str, world_size: int = 1) -> Job:
    return dataclasses.replace(job(run_id, world_size), prunable=True)


async def train(broker: Broker, name: str, epochs: int) -> int:
    """A rank that asks after each epoch; returns after how many it stopped."""
    lease = await taken_up(broker, name)
    done = 0
    for number in range(1, epochs + 1):
        done = number
        if not await broker.epoch(name, lease.lease_id, epoch(number), number=number, reports=lease.rank.rank == 0):
            break
    await broker.finish(name, lease.lease_id, result(lease.rank.rank))
    return done


@scenario
async def test_all_ranks_of_a_run_that_asks_wait_for_each_decision_and_stop_after_the_same_epoch() -> None:
    broker = Broker({"t": 2}, exclusive=False)
    names = [await broker.join(card(index)) for index in range(2)]
    await broker.submit(asking("r", 2))
    ranks = [await soon(train(broker, name, 5)) for name in names]
    assert await broker.events("r") == [RunStarted(attempt=1), epoch(1)]
    await broker.decide("r", 1, 1)
    assert await broker.events("r") == [epoch(2)], "one event an epoch, whoever asks"
    await broker.decide("r", 2, 2)
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in ranks), "that was said of another attempt"
    await broker.decide("r", 1, None)
    assert await asyncio.gather(*ranks) == [2, 2]
    assert await outcome_of(broker, "r") == "ok"
    await broker.submit(job("next", 2))
    both = await asyncio.gather(*(taken_up(broker, name) for name in names))
    assert {attempt_of(lease) for lease in both} == {"next/1"}, "no rank leaks"


@scenario
async def test_a_rank_that_dies_while_it_waits_for_a_decision_begins_anew() -> None:
    broker = Broker({"t": 1}, exclusive=False)
    name = await broker.join(card(0))
    await broker.submit(asking("r"))
    waits = await soon(train(broker, name, 2))
    await broker.rank_failed("t", 0)
    waits.cancel()
    again = await soon(train(broker, await broker.join(card(0, group=1)), 2))
    events = [*await broker.events("r")]
    assert [type(event) for event in events] == [RunStarted, EpochEnded, RunStarted, EpochEnded]
    await broker.decide("r", 1, 1)
    assert not again.done()
    await broker.decide("r", 2, 1)
    await broker.decide("r", 2, 2)
    assert await again == 2


@scenario
async def test_a_run_that_is_stopped_is_not_begun_anew_whenever_its_rank_dies() -> None:
    for when in ("before", "after", "queued"):
        broker = Broker({"t": 1}, exclusive=False)
        name = await broker.join(card(0))
        await broker.submit(asking("r"))
        waits = await soon(train(broker, name, 5))
        if when == "before":
            await broker.decide("r", 1, None)
        await broker.rank_failed("t", 0)
        waits.cancel()
        again = None
        if when == "after":
            again = await soon(train(broker, await broker.join(card(0, group=1)), 5))
        await broker.decide("r", 1, None)
        last = await end_of(broker, "r")
        assert last.verdict.outcome.value == ("ok" if again else "killed"), when
        assert last.attempts == (2 if again else 1), when
        if again is not None:
            assert await again == 1, "the stop is for the run, whichever its attempt"


@scenario
async def test_what_ended_its_neighbour_is_no_evidence_of_a_replaced_ranks_end() -> None:
    async def count(card: RankRegistration) -> int:
        return 1

    broker = Broker({"t": 2}, exclusive=False, oom_kills_on=count)
    names = [await broker.join(card(index)) for index in range(2)]
    for run_id in ("large", "beside"):
        await broker.submit(job(run_id))
    await asyncio.gather(*(taken_up(broker, name, oom_kills=0) for name in names))
    await broker.rank_failed("t", 0)
    assert await outcome_of(broker, "large") == "oom"
    log: list[Lease] = []
    fresh = [await broker.join(card(index, group=1, oom_kills=1)) for index in range(2)]
    ranks = [asyncio.ensure_future(serve(broker, name, log)) for name in fresh]
    assert await outcome_of(broker, "beside") == "ok"
    await broker.close()
    await asyncio.gather(*ranks)


@scenario
async def test_a_rank_whose_run_ends_while_its_machine_is_asked_is_lost_all_the_same() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def count(card: RankRegistration) -> int:
        asked.set()
        await answer.wait()
        return 0

    broker = Broker({"t": 1}, oom_kills_on=count)
    name = await broker.join(card(0))
    await broker.submit(job("r"))
    lease = await taken_up(broker, name)
    failed = asyncio.ensure_future(broker.rank_failed("t", 0))
    await asked.wait()
    await broker.finish(name, lease.lease_id, result(0))
    answer.set()
    await failed
    assert await outcome_of(broker, "r") == "ok"
    assert isinstance(await broker.next_lease(name), Leave)


@scenario
async def test_what_a_dead_trainable_still_waits_for_goes_to_its_successor() -> None:
    broker = Broker({"t": 1})
    name = await broker.join(card(0))
    await broker.submit(job("r"))
    dead = await soon(broker.events("r"))
    lease = await soon(broker.next_lease(name))
    await dead
    dead = await soon(broker.events("r"))
    await broker.submit(job("r"))
    alive = await soon(broker.events("r"))
    assert await dead == []
    assert await alive == [RunStarted(attempt=1)]
    lease.cancel()


@scenario
async def test_time_that_a_run_waits_for_a_decision_is_no_stall() -> None:
    broker = Broker({"t": 1}, exclusive=False, limits=RunLimits(stall_timeout=0.2, max_retries=0))
    name = await broker.join(card(0))
    await broker.submit(asking("r"))
    waits = await soon(train(broker, name, 1))
    await asyncio.sleep(1.2)
    await broker.decide("r", 1, 1)
    assert await waits == 1
    assert await outcome_of(broker, "r") == "ok"


@scenario
async def test_a_run_that_is_proposed_twice_is_run_for_the_first_that_asked() -> None:
    broker = Broker({"t": 1}, exclusive=False)
    assert await broker.submit(job("r"), owner="one")
    assert not await broker.submit(job("r"), owner="two")
    assert await broker.submit(job("r"), owner="one")


async def on_machines(broker: Broker, *machines: str) -> dict[str, asyncio.Task[Any]]:
    """A rank of a trainer of its own on each machine, asking for work, by its name."""
    waiting = {}
    for place, machine in enumerate(machines):
        new = card(0, machine, trainer=machine)
        name = await broker.join(dataclasses.replace(new, machine_order=place, machine_info={"host": machine}))
        waiting[name] = await soon(broker.next_lease(name))
    return waiting


@scenario
async def test_a_run_that_asks_for_two_machines_gets_two_and_the_first_ones_come_first() -> None:
    broker = Broker({"a": 1, "b": 1, "c": 1})
    waiting = await on_machines(broker, "a", "b", "c")
    await broker.submit(job("r", machines=2, ranks_per_machine=1))
    await asyncio.sleep(0)
    first, second, third = waiting.values()
    assert [task.result().machines for task in (first, second)] == [("a", "b")] * 2
    assert (first.result().rank.rank, second.result().rank.rank) == (0, 1)
    assert not third.done()
    third.cancel()


@scenario
async def test_a_run_on_two_machines_is_not_put_on_one_that_has_room_for_all() -> None:
    broker = Broker({"t": 2}, limits=RunLimits(wait_for_ranks=0.2))
    for index in range(2):
        await soon(broker.next_lease(await broker.join(card(index))))
    await broker.submit(job("r", machines=2, ranks_per_machine=1))
    done = await end_of(broker, "r")
    assert (done.verdict.outcome.value, done.attempts) == ("skipped", 0)
    assert "machines=2 ranks_per_machine=1 finds 2 ranks, after 0.2 s (wait_for_ranks)" in done.verdict.reason


@scenario
async def test_a_run_tells_what_its_machines_are_the_first_ranks_first() -> None:
    broker = Broker({"a": 1, "b": 1})
    waiting = await on_machines(broker, "a", "b")
    await broker.submit(job("r", 2))
    for name, task in waiting.items():
        lease = await task
        await broker.finish(name, lease.lease_id, result(lease.rank.rank))
    assert (await end_of(broker, "r")).machines == ({"host": "a"}, {"host": "b"})


@scenario
async def test_a_machine_that_leaves_costs_the_run_no_retry_and_those_after_it_wait_once() -> None:
    broker = Broker({"a": 1, "b": 1}, limits=RunLimits(max_retries=0, wait_for_ranks=0.5))
    waiting = await on_machines(broker, "a", "b")
    await broker.submit(job("r-0", 2))
    (first, _) = waiting
    lease = await waiting[first]
    await broker.begun(first, lease.lease_id, 0)
    await broker.end_trainer("b", left="b")
    await broker.finish(first, lease.lease_id, result(0, "error", is_symptom=True))
    began = time.monotonic()
    again = await soon(broker.next_lease(first))
    done = await end_of(broker, "r-0")
    assert time.monotonic() - began > 0.3
    assert (done.verdict.outcome.value, done.attempts) == ("skipped", 1)
    assert "world_size=2 finds 1 ranks since b left, after 0.5 s" in done.verdict.reason
    assert done.earlier[0].reason == "1 of 2 ranks died: b has left"
    began = time.monotonic()
    await broker.submit(job("r-1", 2))
    assert await outcome_of(broker, "r-1") == "skipped"
    assert time.monotonic() - began < 0.3, "the wait is over for all that come after it"
    await broker.submit(job("s"))
    assert attempt_of(await again) == "s/1", "what fits goes on"


@scenario
async def test_a_run_whose_machine_is_back_in_time_goes_on() -> None:
    broker = Broker({"a": 1, "b": 1}, limits=RunLimits(wait_for_ranks=5))
    waiting = await on_machines(broker, "a", "b")
    await broker.end_trainer("b", left="b")
    await broker.submit(job("r", 2))
    await broker.expect("b.2", 1, later=True)
    back = dataclasses.replace(card(0, "b", trainer="b.2"), machine_order=1)
    lease = await broker.next_lease(await broker.join(back))
    assert isinstance(lease, Lease)
    assert lease.machines == ("a", "b")
    assert (await next(iter(waiting.values()))).rank.rank == 0


@scenario
async def test_runs_that_fit_do_not_wait_for_a_machine_that_is_still_coming() -> None:
    broker = Broker({"a": 1})
    waiting = await on_machines(broker, "a")
    await broker.expect("b", 1, later=True)
    await broker.submit(job("r"))
    (task,) = waiting.values()
    assert attempt_of(await task) == "r/1"


@patch("dmls_ray.cluster.scheduler.watchdog.PEER_NOTIFY_DELAY_S", 0.1)
@scenario
async def test_ranks_that_wait_for_a_machine_that_is_gone_are_told_where_it_was() -> None:
    broker = Broker({"a": 1, "b": 1}, limits=RunLimits(max_retries=0, wait_for_ranks=0))
    waiting = await on_machines(broker, "a", "b")
    await broker.submit(job("r", 2))
    first, second = waiting
    lease = await waiting[first]
    await broker.begun(first, lease.lease_id, 0)
    told = await soon(broker.interruption(first))
    await broker.end_trainer("b", left="b")
    assert await told == ("b",), "the host of its store"
    assert await broker.interruption(second) == ()


@patch("dmls_ray.cluster.scheduler.watchdog.PEER_NOTIFY_DELAY_S", 0.1)
@patch("dmls_ray.cluster.scheduler.watchdog.PEER_KILL_DELAY_S", 0.3)
@scenario
async def test_a_rank_that_cannot_be_told_is_ended_and_its_run_not_charged() -> None:
    ended: list[int] = []
    limits = RunLimits(max_retries=0, wait_for_ranks=0)
    broker = Broker({"a": 1, "b": 1}, limits=limits, end_process=lambda rank: ended.append(rank.pid))
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


@scenario
async def test_a_lease_or_a_result_that_the_network_swallowed_is_told_again() -> None:
    broker = Broker({"t": 1})
    name = await broker.join(card(0))
    await soon(broker.next_lease(name))
    await broker.submit(job("r"))
    # The answer did not arrive, so the rank asks again.
    again = await broker.next_lease(name)
    assert attempt_of(again) == "r/1"
    assert isinstance(again, Lease)
    for _ in range(2):
        assert await broker.finish(name, again.lease_id, result(0))
    assert [type(event) for event in await follow(broker, "r")] == [RunStarted, RunFinished]


@scenario
async def test_an_epoch_that_is_told_twice_counts_once() -> None:
    broker = Broker({"t": 1}, exclusive=False)
    name = await broker.join(card(0))
    await soon(broker.next_lease(name))
    await broker.submit(asking("r"))
    lease = await taken_up(broker, name)
    for _ in range(2):
        await soon(broker.epoch(name, lease.lease_id, epoch(1), number=1, reports=True))
    told = await broker.events("r")
    assert [type(event) for event in told] == [RunStarted, EpochEnded]


@scenario
async def test_a_trainer_that_refuses_says_why_to_who_made_it() -> None:
    broker = Broker({"t": 1})
    await broker.end_trainer("u", refused="no PyTorch there")
    assert await broker.refusal("u") == "no PyTorch there"
    assert await broker.refusal("t") == ""


@scenario
async def test_ranks_that_lost_each_other_are_tried_again_and_then_killed_and_no_error_of_the_code() -> None:
    broker = Broker({"t": 2}, limits=RunLimits(max_retries=1))
    names = [await broker.join(card(index)) for index in range(2)]
    await broker.submit(job("r", 2))
    for _ in range(2):
        tasks = [await soon(broker.next_lease(name)) for name in names]
        for name, task in zip(names, tasks, strict=True):
            lease = await task
            await broker.begun(name, lease.lease_id, 0)
            told = {"outcome": "error", "reason": "Connection timed out", "is_symptom": True, "is_disconnected": True}
            await broker.finish(name, lease.lease_id, result(lease.rank.rank, **told))
    done = await end_of(broker, "r")
    assert (done.verdict.outcome.value, done.attempts) == ("killed", 2)
    assert done.verdict.reason == "the ranks lost each other: Connection timed out"


@patch("dmls_ray.cluster.scheduler.watchdog.DEATH_DETECTION_TIMEOUT_S", 0.1)
@patch("dmls_ray.cluster.scheduler.watchdog.PEER_NOTIFY_DELAY_S", 0.1)
@patch("dmls_ray.cluster.scheduler.watchdog.PEER_KILL_DELAY_S", 0.3)
@scenario
async def test_a_rank_that_waits_for_one_that_gave_up_is_not_waited_for_for_ever() -> None:
    ended: list[int] = []
    broker = Broker({"t": 2}, limits=RunLimits(max_retries=0), end_process=lambda rank: ended.append(rank.pid))
    first, second = [await broker.join(card(index)) for index in range(2)]
    tasks = [await soon(broker.next_lease(name)) for name in (first, second)]
    await broker.submit(job("r", 2))
    lease = await tasks[1]
    for name in (first, second):
        await broker.begun(name, lease.lease_id, 0)
    told = {"outcome": "error", "reason": "Connection refused", "is_symptom": True, "is_disconnected": True}
    assert await broker.finish(second, lease.lease_id, result(1, **told)), "it may stay"
    done = await end_of(broker, "r")
    assert ended == [0]
    assert done.verdict.outcome.value == "killed"
    assert done.verdict.reason == "1 of 2 ranks died: it waited for one that had ended with Connection refused"


@scenario
async def test_a_run_that_was_skipped_and_is_submitted_again_meets_under_another_name() -> None:
    # Its ranks would find the addresses of ranks that are gone in the leader's store, and wait for them.
    broker = Broker({"here": 1, "there": 1}, limits=RunLimits(max_retries=0, wait_for_ranks=0))
    here = await broker.join(card(0, "a", trainer="here"))
    gone = await broker.join(card(0, "b", trainer="there"))
    first, second = [await soon(broker.next_lease(name)) for name in (here, gone)]
    await broker.submit(job("r", 2, machines=2))
    before = await first
    await second
    await broker.end_trainer("there", left="b")
    await broker.finish(here, before.lease_id, result(0, "error", reason="gloo", is_symptom=True))
    waits = await soon(broker.next_lease(here))
    assert await outcome_of(broker, "r") == "skipped"
    await broker.forget("r")
    await broker.expect("back", 1, later=True)
    back = await broker.join(card(0, "b", trainer="back"))
    waiting = [waits, await soon(broker.next_lease(back))]
    await broker.submit(job("r", 2, machines=2))
    again = [await task for task in waiting]
    assert again[0].lease_id == again[1].lease_id != before.lease_id


@scenario
async def test_a_trainer_whose_machine_has_left_before_it_was_announced_is_not_waited_for() -> None:
    for later in (False, True):
        broker = Broker({"here": 1}, limits=RunLimits(wait_for_ranks=0))
        here = await soon(broker.next_lease(await broker.join(card(0, trainer="here"))))
        await broker.end_trainer("there", left="b")
        await broker.expect("there", 1, later=later)
        await broker.submit(job("pair", 2))
        assert await outcome_of(broker, "pair") == "skipped"
        await broker.submit(job("alone"))
        assert (await here).rank.rank == 0


@scenario
async def test_a_rank_that_joins_twice_counts_once() -> None:
    broker = Broker({"t": 2}, limits=RunLimits(recycle_above_mib=100))
    await broker.join(card(0))  # the network fails over the answer
    names = [await broker.join(card(index)) for index in range(2)]
    assert (broker._members._present["t"], broker._members.slots["a"]) == (2, 2)
    leases = [await soon(broker.next_lease(name)) for name in names]
    await broker.submit(job("r", 2))
    for number, name in enumerate(names):
        lease = await leases[number]
        await broker.finish(name, lease.lease_id, result(number, "ok", rss_mib=200))
    # Ranks that have grown are replaced once all of them are idle; of a rank that nobody is, that would be never.
    answers = [await soon(broker.next_lease(name)) for name in names]
    assert [await answer for answer in answers] == [Leave(), Leave()]


@scenario
async def test_what_a_rank_says_after_it_was_told_of_a_lost_one_is_no_cause() -> None:
    broker = Broker({"here": 1, "there": 1}, limits=RunLimits(max_retries=0))
    here = await broker.join(card(0, "a", trainer="here"))
    gone = await broker.join(card(0, "b", trainer="there"))
    hears = await soon(broker.interruption(here))
    leases = [await soon(broker.next_lease(name)) for name in (here, gone)]
    await broker.submit(job("r", 2))
    lease = await leases[0]
    await broker.begun(here, lease.lease_id, 0)
    await broker.end_trainer("there", left="b")
    with patch("dmls_ray.cluster.scheduler.watchdog.PEER_NOTIFY_DELAY_S", 0.0):
        assert await hears == ("b",)
    # After NCCL's groups were aborted, say: "Default process group has not been initialized".
    told = result(0, "error", reason="ValueError: whatever", is_symptom=False)
    assert await broker.finish(here, lease.lease_id, told), "nobody waits for it"
    await broker.expect("back", 1, later=True)
    waiting = [await soon(broker.next_lease(name)) for name in (here, await broker.join(card(0, "b", trainer="back")))]
    assert [attempt_of(await task) for task in waiting] == ["r/2", "r/2"]


@scenario
async def test_a_trainer_that_never_comes_is_waited_for_no_longer_than_that() -> None:
    with patch("dmls_ray.cluster.scheduler.membership.TRAINER_START_TIMEOUT_S", 0.2):
        broker = Broker({"here": 1}, limits=RunLimits(wait_for_ranks=0))
        here = await soon(broker.next_lease(await broker.join(card(0, trainer="here"))))
        await broker.expect("never", 1, later=True)
        began = time.monotonic()
        await broker.submit(job("pair", 2))
        assert await outcome_of(broker, "pair") == "skipped"
        assert time.monotonic() - began > 0.2
        await broker.submit(job("alone"))
        assert (await here).rank.rank == 0


@scenario
async def test_a_broker_that_follows_another_waits_for_no_trainer_that_came_later() -> None:
    broker = Broker({"here": 1, "slow": 1}, joining_later=["slow"])
    here = await soon(broker.next_lease(await broker.join(card(0, trainer="here"))))
    await broker.submit(job("alone"))
    assert (await here).rank.rank == 0
