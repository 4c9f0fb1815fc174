"""The calls of the broker: runs submitted and followed, repeated calls, decisions, time limits, and lost ranks."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from dmls_ray.cluster.messages import ExpectedTrainer, Leave
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.cluster.scheduler.dispatcher import NEWS_INTERVAL_S
from dmls_ray.config.options import RunLimits
from dmls_ray.records.run_events import EpochEnded, RunFinished, RunProgressed, RunStarted
from tests.cluster.scheduler.ranks import (
    asking,
    attempt_of,
    card,
    end_of,
    epoch,
    follow,
    group,
    job,
    killer,
    on_machines,
    outcome_of,
    result,
    run_virtually,
    scenario,
    serve,
    serving,
    soon,
    taken_up,
    train,
    trainers,
)


@scenario
async def test_a_run_takes_its_ranks_reports_its_events_and_returns_its_ranks() -> None:
    broker, log = Broker(trainers(t=2)), []  # type: ignore[var-annotated]
    names = [await broker.join(card(index)) for index in range(2)]
    ranks = [asyncio.ensure_future(serve(broker, name, log)) for name in names]
    for number, size in enumerate((2, 1, 2)):
        await broker.submit(job(f"r{number}", size))
        events = await follow(broker, f"r{number}")
        assert events[0] == RunStarted(attempt=1)
        assert sum(isinstance(event, EpochEnded) for event in events) == 1, "those of rank 0"
        assert events[-1].verdict.outcome.value == "ok"
        assert [item.rank for item in events[-1].results] == list(range(size))
    parts_served = sorted((attempt_of(lease), lease.rank.rank, lease.rank.backend) for lease in log)
    pair = [(0, "gloo"), (1, "gloo")]
    assert parts_served == [
        (f"r{number}/1", *part) for number, parts in enumerate((pair, [(0, None)], pair)) for part in parts
    ]
    met_at = {lease.rank.store_address for lease in log if lease.rank.world_size > 1}
    assert met_at == {("a", 1000)}, "all meet at the leader's store"
    await broker.close()
    await asyncio.gather(*ranks)


@scenario
async def test_all_ranks_of_a_run_that_asks_wait_for_each_decision_and_stop_after_the_same_epoch() -> None:
    broker, names = await group(2, exclusive=False)
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
async def test_a_lease_or_a_result_that_the_network_lost_is_sent_again() -> None:
    broker, (name,) = await group(1)
    await soon(broker.next_lease(name))
    await broker.submit(job("r"))
    # The answer did not arrive, so the rank asks again.
    again = await broker.next_lease(name)
    assert attempt_of(again) == "r/1"
    for _ in range(2):
        assert await broker.finish(name, again.lease_id, result(0))
    assert [type(event) for event in await follow(broker, "r")] == [RunStarted, RunFinished]


@pytest.mark.parametrize("arrive", [[1, 3, 2, 5, 4], [5, 4, 3, 2, 1], [2, 2, 1, 3, 3, 1], [4], []])
def test_epochs_are_passed_on_once_and_in_their_order_however_they_arrive(arrive: list[int]) -> None:
    async def play() -> None:
        broker = Broker(trainers(t=2))
        waiting = [await soon(taken_up(broker, await broker.join(card(index)))) for index in range(2)]
        await broker.submit(job("r", 2))
        (first, lease), (second, _) = [(f"t/{index}", await task) for index, task in enumerate(waiting)]
        names = {name.partition("#")[0]: name for name in broker.members.ranks}
        for number in arrive:
            await broker.epoch(names[first], lease.lease_id, epoch(number), number)
            await broker.epoch(names[second], lease.lease_id, epoch(number), number)
        epochs = [epoch(number) for number in range(1, 6)]
        await broker.finish(names[second], lease.lease_id, result(1, "error"), epochs)
        await broker.finish(names[first], lease.lease_id, result(0, "error"), epochs)
        assert [event for event in await follow(broker, "r") if isinstance(event, EpochEnded)] == epochs

    run_virtually(play())


@scenario
async def test_a_run_that_was_skipped_and_is_submitted_again_meets_under_another_name() -> None:
    # Its ranks would find the addresses of ranks that are gone in the leader's store, and wait for them.
    broker = Broker(trainers(here=1, there=1), limits=RunLimits(max_retries=0, wait_for_ranks=0))
    here = await broker.join(card(0, "a", trainer="here"))
    gone = await broker.join(card(0, "b", trainer="there"))
    first, second = [await soon(broker.next_lease(name)) for name in (here, gone)]
    await broker.submit(job("r", 2, machines=2))
    before = await first
    await second
    await broker.end_trainer("there", "b")
    await broker.finish(here, before.lease_id, result(0, "error", reason="gloo", is_symptom=True))
    waits = await soon(broker.next_lease(here))
    assert await outcome_of(broker, "r") == "skipped"
    await broker.forget("r")
    await broker.expect("back", ExpectedTrainer(ranks=1, is_optional=True))
    back = await broker.join(card(0, "b", trainer="back"))
    waiting = [waits, await soon(broker.next_lease(back))]
    await broker.submit(job("r", 2, machines=2))
    again = [await task for task in waiting]
    assert again[0].lease_id == again[1].lease_id != before.lease_id


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
    broker, names = await group(2, limits=RunLimits(stall_timeout=0.2), end_process=killer(ended))
    await broker.submit(job("r", 2))
    for name in names:
        await soon(taken_up(broker, name))
    while len(ended) < 2:
        await asyncio.sleep(0.05)
    assert sorted(ended) == [0, 1]
    assert await broker.next_lease(names[0]) == Leave(), "what was given up must not serve on"
    await serving(broker, card(0, group=1), card(1, group=1))
    *events, done = await follow(broker, "r")
    assert (done.verdict.outcome.value, done.attempts) == ("ok", 2)
    reason = "no progress for 0.2 s (stall_timeout)"
    assert [(first.outcome, first.reason) for first in done.earlier] == [("timeout", reason)]
    starts = [event for event in events if isinstance(event, RunStarted)]
    assert starts == [RunStarted(attempt=1), RunStarted(attempt=2, after=reason)]


@scenario
async def test_whoever_follows_a_run_hears_how_long_ago_it_made_progress_when_nothing_else_happens() -> None:
    broker, (name,) = await group(1)
    await broker.submit(job("r"))
    await broker.submit(job("waits"))
    lease = await taken_up(broker, name)
    assert await broker.events("r") == [RunStarted(attempt=1)]
    waiting = asyncio.ensure_future(broker.events("r"))
    await asyncio.sleep(4)
    await broker.progress(name, lease.lease_id)
    (event,) = await waiting
    assert isinstance(event, RunProgressed)
    assert event.seconds_ago == pytest.approx(NEWS_INTERVAL_S - 4, abs=0.1)
    assert await broker.events("waits") == [], "it has no ranks yet"


@scenario
async def test_any_sign_of_progress_counts_and_the_time_of_a_run_has_a_bound_of_its_own() -> None:
    broker, (name,) = await group(1, limits=RunLimits(stall_timeout=0.7, run_timeout=1.5, max_retries=0))
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
    await broker.end_trainer("b", "b")
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
    broker, (first, second) = await group(2, limits=RunLimits(max_retries=0), end_process=killer(ended))
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
