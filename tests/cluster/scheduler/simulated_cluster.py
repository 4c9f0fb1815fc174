"""A cluster as coroutines around the scheduler: processes of ranks, Ray Train, the driver, and runs that are followed.

All of them fail as they do in Ray: a process dies at any time, a kill may have no effect.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from dmls_ray.cluster.messages import ExpectedTrainer, Lease, Leave, RankDeath, RankRegistration
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.options import RunLimits
from dmls_ray.records.run_events import EpochEnded, RankResult, RunEvent, RunFinished, RunResult, RunStarted, is_last
from tests.cluster.scheduler.observed_runs import DETECTION_S, SLACK_S, ObservedRuns, Plan
from tests.cluster.scheduler.ranks import asking, card, epoch, job, result

START_S = 5.0
"""Seconds that a group of ranks takes to start."""

REPEATED_S = 1.0
"""Seconds after which a call arrives once more that was repeated in a network failure."""


class Process:
    """The process of a rank."""

    def __init__(self, cluster: SimulatedCluster, registration: RankRegistration) -> None:
        self.cluster, self.registration = cluster, registration
        self.lease: Lease | None = None
        """Of the run under way."""
        self.outcome: asyncio.Future[RankResult] = asyncio.get_running_loop().create_future()
        """Of that run."""
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.name = ""
        self.survives = False
        """A kill had no effect on it."""
        self.task = cluster.start(self._serve())

    def end(self, code: int, **how: bool) -> None:
        if not self.exit_code.done():
            self.exit_code.set_result(code)
            self.cluster.processes.remove(self)
            self.cluster.observed.ended(self.name, self.lease, **how)
            self.task.cancel()

    def crash(self) -> None:
        """End by itself, unlike a process that is killed."""
        self.end(137, crashed=True)

    def give_back(self, outcome: str = "ok", **more: Any) -> None:
        """Return from the run under way."""
        if not self.outcome.done():
            self.outcome.set_result(
                result(self.lease.rank.rank, outcome, run=RunResult(reported={"lease": self.lease.lease_id}), **more)
            )

    async def _serve(self) -> None:
        self.cluster.processes.append(self)
        self.name = await self.cluster.call("join", self.registration)
        while True:
            lease = await self.cluster.call("next_lease", self.name)
            if lease is None:
                return self.end(0)
            if isinstance(lease, Leave):
                return self.end(1)
            await self._run(self.name, lease)

    async def _run(self, name: str, lease: Lease) -> None:
        self.lease, self.outcome = lease, asyncio.get_running_loop().create_future()
        crashes = self.cluster.take(self, lease)
        if crashes == "early":
            self.crash()
            return
        await self.cluster.call("begun", name, lease.lease_id, 0)
        self.cluster.observed.progressed(lease)
        if crashes:
            await asyncio.sleep(0.1)
            self.crash()
            return
        if lease.job.prunable:
            await self._report_epochs(name, lease)
        done = await self.outcome
        self.lease = None
        if not await self.cluster.call("finish", name, lease.lease_id, done):
            self.end(1)
        elif done.is_disconnected:
            self.cluster.start(self._repeat(name, lease, done))

    async def _repeat(self, name: str, lease: Lease, done: RankResult) -> None:
        """The network has failed, and the result arrives once more, when the process may serve another run."""
        await asyncio.sleep(REPEATED_S)
        await self.cluster.call("finish", name, lease.lease_id, done)

    async def _report_epochs(self, name: str, lease: Lease) -> None:
        for number in range(1, 4):
            await asyncio.sleep(1)
            if self.outcome.done():
                return
            if not await self.cluster.call("epoch", name, lease.lease_id, epoch(number), number):
                self.give_back()
                return


class SimulatedTrainer:
    """A TorchTrainer: its controller starts a group of ranks again whenever one of them dies.

    Args:
        cluster: where it runs.
        name: its name.
        expected: what the broker knows of it.
        start: what becomes of the next group: it works (""), hangs for ever ("hangs"), or one of its ranks reports that
            it cannot serve ("fails"), while the others wait for that rank.
    """

    def __init__(self, cluster: SimulatedCluster, name: str, expected: ExpectedTrainer, start: str = "") -> None:
        self.cluster, self.name, self.expected, self.start = cluster, name, expected, start
        self.departed = False
        self.failed_at = math.inf
        """When the broker learned that the ranks cannot serve."""
        self.group: list[Process] = []
        self._stopped = asyncio.Event()
        cluster.start(self._live())

    def stop(self) -> None:
        """End the controller, and its ranks with it."""
        self._stopped.set()

    def leave(self) -> None:
        """The machine is gone, and its processes with it."""
        self.departed = True
        self.cluster.observed.machine_left(self.name)
        for process in list(self.group):
            process.end(137, left=True)
        self.stop()

    async def _live(self) -> None:
        work = self.cluster.start(self._hold())
        stopped = self.cluster.start(self._stopped.wait())
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        for process in list(self.group):
            process.end(137)
        if not self.departed:
            self.cluster.observed.has_lost_machines = True
        self.departed = True

    async def _hold(self) -> None:
        """Serve until all ranks have left."""
        while True:
            await asyncio.sleep(START_S)
            if self.cluster.early_deaths:
                self.cluster.early_deaths -= 1
                await self.cluster.call("ranks_failed", self.name, {0: RankDeath()})
                continue
            start, self.start = self.start, ""
            if start:
                await self._never_serve(fails=start == "fails")
                return
            group = next(self.cluster.numbers)
            self.group = [self._rank(index, group) for index in range(self.expected.ranks)]
            codes = [process.exit_code for process in self.group]
            while not all(code.done() for code in codes):
                await asyncio.wait([code for code in codes if not code.done()], return_when=asyncio.FIRST_COMPLETED)
                if any(code.done() and code.result() for code in codes):
                    break
            else:
                return
            await asyncio.sleep(DETECTION_S)
            dead = {index: RankDeath() for index, code in enumerate(codes) if code.done() and code.result()}
            await self.cluster.call("ranks_failed", self.name, dead)
            for process in self.group:
                process.end(137)

    async def _never_serve(self, *, fails: bool) -> None:
        if fails:
            await self.cluster.call("trainer_failed", self.name, "there is no data")
            self.cluster.observed.has_lost_machines = True
            if self.expected.ranks == 1:
                return
            self.failed_at = asyncio.get_running_loop().time()
        await asyncio.Event().wait()

    def _rank(self, index: int, group: int) -> Process:
        registration = card(index, self.expected.machine, trainer=self.name, group=group)
        return Process(self.cluster, registration)


class SimulatedCluster:
    """The scheduler, and all that calls it."""

    def __init__(
        self, machines: dict[str, int], *, exclusive: bool, limits: RunLimits, decision_s: float, start: str
    ) -> None:
        self.observed = ObservedRuns(limits, sum(machines.values()))
        self.decision_s = decision_s
        self.numbers = iter(range(10**9))
        self.exclusive, self.limits = exclusive, limits
        self.processes: list[Process] = []
        self.trainers: list[SimulatedTrainer] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.followers: dict[str, asyncio.Task[None]] = {}
        self.events: dict[str, list[RunEvent]] = {}
        """What a follower has read of each run."""
        self.ends: Counter[str] = Counter()
        self.plans: dict[str, Plan] = {}
        self.kills_work, self.early_deaths, self.finishes = True, 0, False
        expected = {
            f"t{n}": ExpectedTrainer(ranks=count, machine=name) for n, (name, count) in enumerate(machines.items())
        }
        self.trainers = [SimulatedTrainer(self, name, item) for name, item in expected.items()]
        self.trainers[-1].start = start
        self.broker = self._make_broker()
        self._abandoned: dict[Process, float] = {}
        """Processes that serve an attempt that has ended, and since when."""

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        return task

    def _make_broker(self) -> Broker:
        return Broker(
            {trainer.name: trainer.expected for trainer in self.trainers if not trainer.departed},
            exclusive=self.exclusive,
            limits=self.limits,
            end_process=self._end_process,
        )

    async def _end_process(self, registration: RankRegistration) -> bool:
        await asyncio.sleep(0.1)
        for process in self.processes:
            if process.registration == registration and self.kills_work:
                process.end(137)
                return True
            process.survives = process.survives or process.registration == registration
        return self.kills_work

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call the broker."""
        # A task of its own, as in Ray: a process that has ended does not begin another call.
        return await asyncio.ensure_future(getattr(self.broker, method)(*args, **options))

    def take(self, process: Process, lease: Lease) -> str:
        """Note that a process begins a run; returns whether, and when, it crashes."""
        plan = self.plans[lease.job.run_id]
        self.observed.taken(lease, plan)
        if self.finishes:
            process.give_back()
        return plan.crash() if lease.rank.rank == 0 else ""

    def submit(self, run_id: str, plan: Plan) -> None:
        self.plans[run_id] = plan
        self.followers[run_id] = self.start(self._follow(run_id, plan))

    async def _follow(self, run_id: str, plan: Plan) -> None:
        self.events[run_id] = []
        made = asking(run_id, plan.world_size) if plan.stopped_after else job(run_id, plan.world_size)
        assert await self.call("submit", made)
        while not self.events[run_id] or not is_last(self.events[run_id][-1]):
            new = await self.call("events", run_id)
            self.events[run_id] += new
            if new and isinstance(new[-1], EpochEnded):
                await self._decide(run_id, plan, new[-1].epoch.epoch)
        self.ends[run_id] += 1
        last = self.events[run_id][-1]
        if isinstance(last, RunFinished):
            self.observed.finished(run_id, plan, last)
        self.start(self.call("forget", run_id))

    async def _decide(self, run_id: str, plan: Plan, epochs: int) -> None:
        attempt = sum(isinstance(event, RunStarted) for event in self.events[run_id])
        stops = epochs >= plan.stopped_after
        await asyncio.sleep(self.decision_s)
        await self.call("decide", run_id, attempt, None if stops else epochs)
        if stops:
            self.observed.unwanted[run_id] = set(self.broker.dispatcher.attempts)

    async def end_trainer(self, name: str, machine: str) -> None:
        """The driver reports that a machine has left."""
        await self.call("end_trainer", name, machine)
        self.observed.over.add(name)

    def check(self, now: float) -> None:
        """The rules that hold at any time."""
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            if not task.cancelled():
                task.result()
        self.observed.check(self.broker, now)
        for trainer in self.trainers:
            is_refused = trainer.name in self.broker.members.refusals
            if is_refused:
                trainer.stop()  # as the driver does
            is_released = is_refused or trainer.departed or not trainer.expected.is_optional
            assert is_released or now - trainer.failed_at < SLACK_S, "a machine that cannot serve is not released"
        self._check_abandoned(now)
        leases = Counter(
            (process.lease.lease_id, process.lease.rank.rank) for process in self.processes if process.lease is not None
        )
        assert not [lease for lease, count in leases.items() if count > 1], "two ranks have the same part in a run"
        if self.exclusive:
            assert len(self.broker.dispatcher.attempts) <= 1
        for events in self.events.values():
            assert sum(is_last(event) for event in events) <= 1, "a run ends twice"
            numbers = [event.attempt for event in events if isinstance(event, RunStarted)]
            assert numbers == list(range(1, len(numbers) + 1))

    def _check_abandoned(self, now: float) -> None:
        """No attempt ends while one of its processes serves it: that one has returned, left, or is killed."""
        self._abandoned = {
            process: self._abandoned.get(process, now)
            for process in self.processes
            if process.lease is not None and not process.outcome.done() and not process.survives
            if self.observed.is_over(process.lease, process.registration.trainer, self.broker)
        }
        assert all(now - since < SLACK_S for since in self._abandoned.values()), "a run ends before its processes"
