"""A cluster as coroutines around the scheduler: processes of ranks, Ray Train, the driver, and runs that are followed.

All of them fail as they do in Ray: a process dies at any time, a kill may have no effect, a broker loses its state.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from dmls_ray.cluster.messages import ExpectedTrainer, Lease, Leave, RankDeath, RankRegistration
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.run_limits import RunLimits
from dmls_ray.records.run_events import RankResult, RunEvent, RunStarted, RunUnknown, is_last
from tests.cluster.scheduler.ranks import card, job, result

ORPHAN_S = 4.0
"""Seconds after which a rank ends whose run the broker does not know."""

DETECTION_S = 2.0
"""Seconds until Ray Train looks at its workers again."""

START_S = 5.0
"""Seconds that a group of ranks takes to start."""


class BrokerGoneError(Exception):
    """The broker died over a call."""


class Process:
    """The process of a rank."""

    def __init__(self, cluster: SimulatedCluster, registration: RankRegistration) -> None:
        self.cluster, self.registration = cluster, registration
        self.lease: Lease | None = None
        """Of the run under way."""
        self.outcome: asyncio.Future[RankResult] = asyncio.get_running_loop().create_future()
        """Of that run."""
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.task = cluster.start(self._serve())

    def end(self, code: int) -> None:
        if not self.exit_code.done():
            self.exit_code.set_result(code)
            self.cluster.processes.remove(self)
            self.task.cancel()

    async def _serve(self) -> None:
        self.cluster.processes.append(self)
        name = await self._join()
        while True:
            try:
                lease = await self.cluster.call("next_lease", name)
            except BrokerGoneError:
                continue
            if lease is None:
                return self.end(0)
            if isinstance(lease, Leave):
                if not lease.join_again:
                    return self.end(1)
                name = await self._join()
                continue
            await self._run(name, lease)

    async def _join(self) -> str:
        while True:
            with contextlib.suppress(BrokerGoneError):
                return str(await self.cluster.call("join", self.registration))

    async def _run(self, name: str, lease: Lease) -> None:
        self.lease, self.outcome = lease, asyncio.get_running_loop().create_future()
        self.cluster.take(self, lease)
        try:
            await self.cluster.call("begun", name, lease.lease_id, 0)
            done = await self.cluster.before_the_broker_dies(self.outcome)
            self.lease = None
            if not await self.cluster.call("finish", name, lease.lease_id, done):
                self.end(1)
        except BrokerGoneError:
            if self.lease is not None:
                await asyncio.wait([self.outcome], timeout=ORPHAN_S)
                if not self.outcome.done():
                    self.end(1)
            self.lease = None


class SimulatedTrainer:
    """A TorchTrainer: its controller starts a group of ranks again whenever one of them dies."""

    def __init__(self, cluster: SimulatedCluster, name: str, expected: ExpectedTrainer) -> None:
        self.cluster, self.name, self.expected = cluster, name, expected
        self.departed = False
        self.group: list[Process] = []
        self._stopped = asyncio.Event()
        cluster.start(self._live())

    def stop(self) -> None:
        """End the controller, and its ranks with it."""
        self._stopped.set()

    def leave(self) -> None:
        """The machine is gone."""
        self.departed = True
        for process in list(self.group):
            process.end(137)
        self.stop()

    async def _live(self) -> None:
        first = self.name
        for life in range(1, 1000):
            await self.cluster.persistently("controlled_by", self.name, self)
            work = self.cluster.start(self._hold())
            stopped = self.cluster.start(self._stopped.wait())
            await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
            is_over = work.done() or self.departed
            work.cancel()
            for process in list(self.group):
                process.end(137)
            if is_over:
                break
            self._stopped.clear()
            before, self.name = self.name, f"{first}.{life}"
            if await self.cluster.persistently("replace_trainer", before, self.name, self.expected):
                break
        self.departed = True

    async def _hold(self) -> None:
        """Serve until all ranks have left."""
        while True:
            await asyncio.sleep(START_S)
            if self.cluster.early_deaths:
                self.cluster.early_deaths -= 1
                await self.cluster.persistently("ranks_failed", self.name, {0: RankDeath()})
                continue
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
            await self.cluster.persistently("ranks_failed", self.name, dead)
            for process in self.group:
                process.end(137)

    def _rank(self, index: int, group: int) -> Process:
        registration = card(index, self.expected.machine, trainer=self.name, group=group)
        return Process(self.cluster, registration)


class SimulatedCluster:
    """The scheduler, and all that calls it."""

    def __init__(self, machines: dict[str, int], *, exclusive: bool, limits: RunLimits) -> None:
        self.numbers = iter(range(10**9))
        self.exclusive, self.limits = exclusive, limits
        self.processes: list[Process] = []
        self.trainers: list[SimulatedTrainer] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.followers: dict[str, asyncio.Task[None]] = {}
        self.events: dict[str, list[RunEvent]] = {}
        """What a follower has read of each run since the last broker died."""
        self.ends: Counter[str] = Counter()
        self.world_sizes: dict[str, int] = {}
        self.kills_work, self.early_deaths, self.finishes = True, 0, False
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        expected = {
            f"t{n}": ExpectedTrainer(ranks=count, machine=name) for n, (name, count) in enumerate(machines.items())
        }
        self.trainers = [SimulatedTrainer(self, name, item) for name, item in expected.items()]
        self.broker = self._make_broker()

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
            stop_controller=lambda trainer: trainer.stop(),
        )

    async def _end_process(self, registration: RankRegistration) -> bool:
        await asyncio.sleep(0.1)
        for process in self.processes:
            if process.registration == registration and self.kills_work:
                process.end(137)
                return True
        return self.kills_work

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call the broker.

        Raises:
            BrokerGoneError: it died over the call.
        """
        return await self.before_the_broker_dies(asyncio.ensure_future(getattr(self.broker, method)(*args, **options)))

    async def before_the_broker_dies(self, future: asyncio.Future[Any]) -> Any:
        try:
            await asyncio.wait([future, self._gone], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            future.cancel()  # Ray cancels the calls of a process that has ended
            raise
        if future.done():
            return future.result()
        if isinstance(future, asyncio.Task):
            future.cancel()
        raise BrokerGoneError

    async def persistently(self, method: str, *args: Any, **options: Any) -> Any:
        while True:
            with contextlib.suppress(BrokerGoneError):
                return await self.call(method, *args, **options)

    def take(self, process: Process, lease: Lease) -> None:
        """Note that a process begins a run."""
        if self.finishes:
            process.outcome.set_result(result(lease.rank.rank))

    def submit(self, run_id: str, world_size: int) -> None:
        self.world_sizes[run_id] = world_size
        self.followers[run_id] = self.start(self._follow(run_id, world_size))

    async def _follow(self, run_id: str, world_size: int) -> None:
        brokers_before = -1
        self.events[run_id] = [RunUnknown()]
        while not is_last(self.events[run_id][-1]):
            try:
                if isinstance(self.events[run_id][-1], RunUnknown):
                    brokers_before += 1
                    self.events[run_id] = []
                    assert await self.call("submit", job(run_id, world_size), brokers_before)
                self.events[run_id] += await self.call("events", run_id)
            except BrokerGoneError:
                self.events[run_id].append(RunUnknown())
        self.ends[run_id] += 1

    def lose_follower(self, run_id: str) -> None:
        """Tune's actor dies, and another reads the events of the run from their start."""
        if self.followers[run_id].cancel():
            self.submit(run_id, self.world_sizes[run_id])

    def lose_broker(self) -> None:
        """The broker dies, and another starts without its state."""
        if self.broker._watching is not None:
            self.broker._watching.cancel()
        self._gone.set_result(None)
        self._gone = asyncio.get_running_loop().create_future()
        self.broker = self._make_broker()

    def check(self) -> None:
        """The rules that hold at any time."""
        pending = Counter(name for attempt in self.broker.attempts.values() for name in attempt.pending)
        assert not [name for name, count in pending.items() if count > 1], "a rank serves two runs"
        for attempt in self.broker.attempts.values():
            for name in attempt.pending:
                assert self.broker.members.ranks[name].attempt is attempt
        leases = Counter(
            (process.lease.lease_id, process.lease.rank.rank) for process in self.processes if process.lease is not None
        )
        assert not [lease for lease, count in leases.items() if count > 1], "two ranks have the same part in a run"
        if self.exclusive:
            assert len(self.broker.attempts) <= 1
        for events in self.events.values():
            assert sum(is_last(event) for event in events) <= 1, "a run ends twice"
            numbers = [event.attempt for event in events if isinstance(event, RunStarted)]
            assert numbers == list(range(1, len(numbers) + 1))
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            if not task.cancelled():
                task.result()
