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
from dmls_ray.config.options import RunLimits
from tests.cluster.scheduler.observed_runs import Plan
from tests.cluster.scheduler.ranks import VirtualLoop
from tests.cluster.scheduler.simulated_cluster import REPEATED_S, START_S, Process, SimulatedCluster, SimulatedTrainer

CHECK_EVERY_S = 5.0
"""Interval in which the rules are checked while time goes by."""

OUTCOMES: dict[str, dict[str, Any]] = {
    "ok": {},
    "error": {"outcome": "error", "reason": "ValueError: a fault"},
    "diverged": {"outcome": "diverged"},
    "peer is gone": {"outcome": "error", "is_symptom": True},
    "its child process died": {"outcome": "killed"},
    "network failed": {"outcome": "error", "is_symptom": True, "is_disconnected": True},
}

PLANS = st.builds(
    Plan,
    world_size=st.integers(1, 3),
    crashes=st.sampled_from([0, 0, 0, 1, 9]),
    crashes_early=st.booleans(),
    stopped_after=st.sampled_from([0, 0, 2]),
)
PAUSES = st.sampled_from([0.0, 1.0, 12.0, 35.0])
"""Seconds until the next failure."""


class SchedulerMachine(RuleBasedStateMachine):
    """Random failures of everything around the scheduler."""

    @initialize(
        machines=st.sampled_from([{"a": 1}, {"a": 2}, {"a": 1, "b": 1}, {"a": 2, "b": 2}]),
        exclusive=st.booleans(),
        stall_timeout=st.sampled_from([20.0, 60.0]),
        run_timeout=st.sampled_from([None, 30.0]),
        max_retries=st.integers(0, 2),
        decision_s=st.sampled_from([0.0, 65.0]),
        start=st.sampled_from([""] * 9 + ["hangs"]),
        plans=st.lists(PLANS, min_size=2, max_size=6),
    )
    def begin(
        self, machines: dict[str, int], exclusive: bool, decision_s: float, start: str, plans: list[Plan], **limits: Any
    ) -> None:
        self.loop = VirtualLoop()
        self.clock = patch("dmls_ray.cluster.scheduler.attempt.time", SimpleNamespace(monotonic=self.loop.time))
        self.clock.start()
        self.runs = 0

        async def make() -> SimulatedCluster:
            bounds = RunLimits(give_up_after=1000, wait_for_ranks=20.0, **limits)
            return SimulatedCluster(machines, exclusive=exclusive, limits=bounds, decision_s=decision_s, start=start)

        self.cluster = self.loop.run_until_complete(make())
        self.cluster.observed.may_abort = bool(start)
        for plan in plans:
            self.submit(plan, 0.0)
        self.wait(2 * START_S)

    def do(self, action: Any, seconds: float = 0.0) -> None:
        async def act() -> None:
            action()
            until = self.loop.time() + seconds
            while (left := until - self.loop.time()) > 0:
                await asyncio.sleep(min(left, CHECK_EVERY_S))
                self.cluster.check(self.loop.time())
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

    @rule(plan=PLANS, seconds=PAUSES)
    def submit(self, plan: Plan, seconds: float) -> None:
        self.runs += 1
        self.do(lambda: self.cluster.submit(f"r{self.runs}-0", plan), seconds)

    @rule(seconds=st.sampled_from([0.1, 3.0, 30.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.do(lambda: None, seconds)

    def wait_for_a_run(self) -> bool:
        """Whether a rank serves a run, within the time that ranks take to come back."""
        for _ in range(30):
            if not self.busy:
                self.do(lambda: None, START_S)
        return bool(self.busy)

    @precondition(lambda self: self.followed)
    @rule(which=st.integers(0, 3), outcome=st.sampled_from(sorted(OUTCOMES)), seconds=PAUSES)
    def one_rank_returns(self, which: int, outcome: str, seconds: float) -> None:
        if self.wait_for_a_run():
            process = self.busy[which % len(self.busy)]
            self.do(lambda: process.give_back(**OUTCOMES[outcome]), seconds)

    def all_return(self, outcome: str, seconds: float) -> None:
        def finish() -> None:
            for process in self.busy:
                process.give_back(**OUTCOMES[outcome])

        self.wait_for_a_run()
        self.do(finish, seconds)

    @precondition(lambda self: self.followed)
    @rule(seconds=PAUSES)
    def all_ranks_return(self, seconds: float) -> None:
        self.all_return("ok", seconds)

    @precondition(lambda self: self.followed)
    @rule()
    def the_network_fails(self) -> None:
        self.all_return("network failed", REPEATED_S + CHECK_EVERY_S)

    @precondition(lambda self: self.cluster.processes)
    @rule(which=st.integers(0, 3), seconds=PAUSES)
    def a_process_dies(self, which: int, seconds: float) -> None:
        process = self.cluster.processes[which % len(self.cluster.processes)]
        self.do(process.crash, seconds)

    @rule(works=st.booleans())
    def kills_have_an_effect_or_not(self, works: bool) -> None:
        self.cluster.kills_work = works
        self.cluster.observed.may_abort |= not works

    @precondition(lambda self: self.cluster.processes)
    @rule(which=st.integers(0, 3), count=st.sampled_from([1, 3, 5]))
    def a_process_dies_and_so_do_the_next_before_they_join(self, which: int, count: int) -> None:
        self.cluster.early_deaths = count
        self.cluster.observed.may_abort = True
        self.a_process_dies(which, 0.0)

    @precondition(lambda self: self.cluster.processes)
    @rule(which=st.integers(0, 3), start=st.sampled_from(["hangs", "fails"]), seconds=PAUSES)
    def a_process_dies_and_the_next_do_not_serve(self, which: int, start: str, seconds: float) -> None:
        process = self.cluster.processes[which % len(self.cluster.processes)]
        for trainer in self.cluster.trainers:
            if process in trainer.group:
                trainer.start = start
        self.cluster.observed.may_abort = True
        self.do(process.crash)
        self.submit(Plan(), seconds)

    @precondition(lambda self: len(self.present) > 1)
    @rule(which=st.integers(0, 2), seconds=PAUSES)
    def a_machine_leaves_a_run_on_all_ranks(self, which: int, seconds: float) -> None:
        def leave() -> None:
            trainer = self.present[which % len(self.present)]
            name, machine = trainer.name, trainer.expected.machine
            trainer.leave()
            self.cluster.start(self.cluster.end_trainer(name, machine))

        self.submit(Plan(world_size=sum(trainer.expected.ranks for trainer in self.present)), 0.0)
        self.wait_for_a_run()
        if len(self.present) > 1:
            self.do(leave, seconds)

    @precondition(lambda self: len(self.present) < 3)
    @rule(ranks=st.integers(1, 2), start=st.sampled_from(["", "", "hangs", "fails"]), seconds=PAUSES)
    def a_machine_joins(self, ranks: int, start: str, seconds: float) -> None:
        number = next(self.cluster.numbers)
        expected = ExpectedTrainer(ranks=ranks, machine=f"m{number}", is_optional=True)

        def join() -> None:
            trainer = SimulatedTrainer(self.cluster, f"late{number}", expected, start)
            self.cluster.trainers.append(trainer)
            self.cluster.start(self.cluster.call("expect", trainer.name, expected))

        self.do(join, seconds)

    @invariant()
    def rules_hold(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.check(self.loop.time())

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
            self.cluster.check(self.loop.time())
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
    run_state_machine_as_test(SchedulerMachine, settings=settings(**COMMON, max_examples=40, stateful_step_count=40))


@pytest.mark.slow
def test_every_run_ends_once_whatever_fails_for_long() -> None:
    run_state_machine_as_test(SchedulerMachine, settings=settings(**COMMON, max_examples=1500, stateful_step_count=60))
