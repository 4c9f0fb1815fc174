"""The scheduler under random failures: every run ends exactly once, no rank serves two runs, nothing waits for ever."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dmls_ray.cluster.messages import ExpectedTrainer
from dmls_ray.config.run_limits import RunLimits
from tests.cluster.scheduler.ranks import result
from tests.cluster.scheduler.simulated_cluster import START_S, Process, SimulatedCluster, SimulatedTrainer
from tests.cluster.scheduler.virtual_time import VirtualLoop

OUTCOMES: dict[str, dict[str, Any]] = {
    "ok": {},
    "error": {"outcome": "error", "reason": "ValueError: a fault"},
    "diverged": {"outcome": "diverged"},
    "peer is gone": {"outcome": "error", "is_symptom": True},
    "network failed": {"outcome": "error", "is_symptom": True, "is_disconnected": True},
}


class SchedulerMachine(RuleBasedStateMachine):
    """Random failures of everything around the scheduler."""

    @initialize(
        machines=st.sampled_from([{"a": 1}, {"a": 2}, {"a": 1, "b": 1}, {"a": 2, "b": 2}]),
        exclusive=st.booleans(),
        run_timeout=st.sampled_from([None, 30.0]),
        max_retries=st.integers(0, 2),
    )
    def begin(self, machines: dict[str, int], exclusive: bool, run_timeout: float | None, max_retries: int) -> None:
        self.loop = VirtualLoop()
        self.clock = patch("dmls_ray.cluster.scheduler.clock.time", SimpleNamespace(monotonic=self.loop.time))
        self.clock.start()
        limits = RunLimits(stall_timeout=20.0, run_timeout=run_timeout, max_retries=max_retries, give_up_after=1000)
        self.runs = 0

        async def make() -> SimulatedCluster:
            return SimulatedCluster(machines, exclusive=exclusive, limits=limits)

        self.cluster = self.loop.run_until_complete(make())
        self.wait(2 * START_S)

    def do(self, action: Any, seconds: float = 0.0) -> None:
        async def act() -> None:
            action()
            await asyncio.sleep(seconds)
            for _ in range(5):
                await asyncio.sleep(0)

        self.loop.run_until_complete(act())

    @property
    def busy(self) -> list[Process]:
        return [process for process in self.cluster.processes if process.lease and not process.outcome.done()]

    @property
    def followed(self) -> list[str]:
        return [run_id for run_id, task in self.cluster.followers.items() if not task.done()]

    @property
    def present(self) -> list[SimulatedTrainer]:
        return [trainer for trainer in self.cluster.trainers if not trainer.departed]

    @rule(world_size=st.integers(1, 3), seconds=st.sampled_from([0.0, 1.0, 15.0]))
    def submit(self, world_size: int, seconds: float) -> None:
        self.runs += 1
        self.do(lambda: self.cluster.submit(f"r{self.runs}-0", world_size), seconds)

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 10.0, 30.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.do(lambda: None, seconds)

    @precondition(lambda self: self.busy)
    @rule(which=st.integers(0, 3), outcome=st.sampled_from(sorted(OUTCOMES)))
    def one_rank_returns(self, which: int, outcome: str) -> None:
        process = self.busy[which % len(self.busy)]
        assert process.lease is not None
        returned = result(process.lease.rank.rank, **OUTCOMES[outcome])
        self.do(lambda: None if process.outcome.done() else process.outcome.set_result(returned))

    @precondition(lambda self: self.busy)
    @rule()
    def all_ranks_return(self) -> None:
        def finish() -> None:
            for process in self.busy:
                assert process.lease is not None
                process.outcome.set_result(result(process.lease.rank.rank))

        self.do(finish)

    @precondition(lambda self: self.cluster.processes)
    @rule(which=st.integers(0, 3))
    def a_process_dies(self, which: int) -> None:
        process = self.cluster.processes[which % len(self.cluster.processes)]
        self.do(lambda: process.end(137))

    @rule(works=st.booleans())
    def kills_have_an_effect_or_not(self, works: bool) -> None:
        self.cluster.kills_work = works

    @rule(count=st.integers(1, 5))
    def the_next_groups_die_before_they_join(self, count: int) -> None:
        self.cluster.early_deaths = count

    @precondition(lambda self: self.present)
    @rule(which=st.integers(0, 1))
    def a_controller_dies(self, which: int) -> None:
        self.do(self.present[which % len(self.present)].stop)

    @precondition(lambda self: len(self.present) > 1)
    @rule()
    def a_machine_leaves(self) -> None:
        trainer = self.present[-1]
        name = trainer.name

        def leave() -> None:
            trainer.leave()
            self.cluster.start(self.cluster.persistently("end_trainer", name, left=trainer.expected.machine))

        self.do(leave)

    @precondition(lambda self: len(self.present) < 3)
    @rule(ranks=st.integers(1, 2))
    def a_machine_joins(self, ranks: int) -> None:
        number = next(self.cluster.numbers)
        expected = ExpectedTrainer(ranks=ranks, machine=f"m{number}", is_optional=True)

        def join() -> None:
            trainer = SimulatedTrainer(self.cluster, f"late{number}", expected)
            self.cluster.trainers.append(trainer)
            self.cluster.start(self.cluster.persistently("expect", trainer.name, expected))

        self.do(join)

    @precondition(lambda self: self.followed)
    @rule(which=st.integers(0, 3))
    def a_follower_dies(self, which: int) -> None:
        run_id = self.followed[which % len(self.followed)]
        self.do(lambda: self.cluster.lose_follower(run_id))

    @rule()
    def the_broker_dies(self) -> None:
        self.do(self.cluster.lose_broker)

    @invariant()
    def rules_hold(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.check()

    def teardown(self) -> None:
        """New leases end well from here on; ranks that hang go on to hang, and kills without effect stay so."""
        if not hasattr(self, "cluster"):
            return

        async def drain() -> None:
            self.cluster.finishes = True
            if self.cluster.followers:
                await asyncio.wait(self.cluster.followers.values(), timeout=15_000)
            await asyncio.sleep(10)

        try:
            self.loop.run_until_complete(drain())
            self.cluster.check()
            waiting = [run_id for run_id, task in self.cluster.followers.items() if not task.done()]
            assert not waiting, f"{waiting} never end"
            assert all(count == 1 for count in self.cluster.ends.values())
        finally:
            self.loop.is_at_end = True
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()
            self.clock.stop()


COMMON = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


def test_every_run_ends_once_whatever_fails() -> None:
    run_state_machine_as_test(SchedulerMachine, settings=settings(**COMMON, max_examples=80, stateful_step_count=40))


@pytest.mark.slow
def test_every_run_ends_once_whatever_fails_for_long() -> None:
    run_state_machine_as_test(SchedulerMachine, settings=settings(**COMMON, max_examples=1500, stateful_step_count=60))
