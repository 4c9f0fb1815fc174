"""The broker: knows every rank by itself, queues runs, and leases ranks to them.

It is an actor without CPUs, made by `pool`; the class itself knows neither Ray nor PyTorch, so its rules can be
tested alone. All methods are coroutines of one event loop: no two of them run at once between two awaits.

    rank:       join -> (next_lease -> emit ... -> finish) ... -> next_lease gives None: the sweep is over
    Trainable:  submit -> events ... -> the last event has kind `done`
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.config import TrialConfig
from dmls_ray.rank import Keep
from dmls_ray.record import Outcome

PEERS_HAVE_S = 2.0
"""How long the other ranks of a run have to end by themselves after one has failed."""


@dataclass(frozen=True, kw_only=True)
class RankCard:
    """What a rank tells of itself when it joins."""

    trainer: str
    """Name of the TorchTrainer that holds it."""
    group: str
    """Name of the trainer's present group; when Train starts its ranks anew, all of them, the group has a new one."""
    index: int
    """Its number within that trainer."""
    machine: str
    pid: int
    device: str
    """Its accelerator, `cuda:N`; `cpu` where it has none."""
    store: tuple[str, int]
    """Host and port of the key-value store it serves, where the ranks of a run that it leads find each other."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run as the broker has it: what to call, with what, on how many ranks."""

    run_id: str
    train: str
    """`module:function` of the training function."""
    config: TrialConfig
    device: str
    """`cpu` or `cuda`: what device=auto became."""
    backend: str
    """What backend=auto became."""
    keep: Keep | None = None
    """What the run leaves beside its record."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """One rank's part in one attempt at a run."""

    lease_id: str
    train: str
    config: TrialConfig
    rank: int
    device: str
    backend: str | None
    machine: str
    store: tuple[str, int]
    keep: Keep | None


@dataclass
class _Rank:
    card: RankCard
    waiting: asyncio.Future[Lease | None] | None = None
    """Set while the rank asks for a lease, which is when it is idle."""
    attempt: _Attempt | None = None


@dataclass
class _Attempt:
    job: Job
    lease_id: str
    ranks: list[str]
    number: int
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By rank, in the order of arrival: the first that is not ok is the cause."""
    lost: set[str] = field(default_factory=set)
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def cause(self) -> dict[str, Any] | None:
        """The first failure of a rank's own, not that another rank was gone."""
        failed = (item for item in self.results.values() if item["outcome"] != Outcome.OK)
        return next((item for item in failed if not item.get("symptom")), None)


@dataclass
class _Stream:
    """Events of a run that its Trainable has not fetched yet."""

    events: list[dict[str, Any]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self.news.set()


class Broker:
    """Leases ranks to runs.

    Args:
        ranks: how many ranks must have joined before a run is leased any, so that no run is timed while another
            rank still starts.
        exclusive: lease to one run at a time (bench mode), rather than to as many as there are ranks for.
        max_retries: how often a run is run again whose rank died.
    """

    def __init__(self, ranks: int, *, exclusive: bool = True, max_retries: int = 1) -> None:
        self._expected = ranks
        self._exclusive = exclusive
        self._max_retries = max_retries
        self._ranks: dict[str, _Rank] = {}
        self._queue: deque[tuple[Job, int]] = deque()
        self._streams: dict[str, _Stream] = {}
        self._attempts: dict[str, _Attempt] = {}
        self._numbers = itertools.count()
        self._ended: set[str] = set()
        self._closed = False
        self._broken = ""
        self._controllers: list[Any] = []

    # --- ranks ----------------------------------------------------------------------------------------------

    async def join(self, card: RankCard) -> str:
        """A rank is there; returns its name. The first of a new group says that the trainer's old ranks are lost.

        All of them, and not only the one whose place it takes: a run leased to a rank that is about to be ended would
        leave the others waiting for it.
        """
        for name, rank in list(self._ranks.items()):
            if rank.card.trainer == card.trainer and rank.card.group != card.group:
                self._lose(name)
        name = f"{card.trainer}/{card.index}#{next(self._numbers)}"
        if card.trainer not in self._ended:
            self._ranks[name] = _Rank(card)
        return name

    async def next_lease(self, name: str) -> Lease | None:
        """Wait for work; None when there is no more."""
        rank = self._ranks.get(name)
        if rank is None or self._closed:
            return None
        waiting = rank.waiting = asyncio.get_running_loop().create_future()
        self._dispatch()
        return await waiting

    async def emit(self, name: str, lease_id: str, event: dict[str, Any]) -> None:
        """An event of a run under way."""
        attempt = self._attempts.get(lease_id)
        if attempt is not None and name in attempt.ranks:
            self._streams[attempt.job.run_id].add(event)

    async def finish(self, name: str, lease_id: str, result: dict[str, Any]) -> bool:
        """A rank's result, of which the first counts; returns whether the rank may stay.

        A rank that failed while others wait for it in a collective must end its process: neither gloo nor NCCL tells
        them in any other way. Where all ranks fail, nobody waits, and all may stay.
        """
        attempt = self._attempts.get(lease_id)
        if attempt is None or name not in attempt.ranks:
            return True
        attempt.results.setdefault(name, result)
        self._settle(attempt)
        if result["outcome"] == Outcome.OK or result.get("symptom"):
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(attempt.settled.wait(), PEERS_HAVE_S)
        if attempt.settled.is_set():
            return True
        self._lose(name)
        return False

    async def end_trainer(self, trainer: str) -> None:
        """A trainer's ranks are to go, and those that it may start anew are not wanted."""
        self._ended.add(trainer)
        for name, rank in list(self._ranks.items()):
            if rank.card.trainer == trainer:
                self._lose(name)

    async def controlled_by(self, controller: Any) -> None:
        """A trainer's controller tells of itself."""
        self._controllers.append(controller)

    async def controllers(self) -> list[Any]:
        """The actors that control trainers, ended ones included."""
        return self._controllers

    # --- runs -----------------------------------------------------------------------------------------------

    async def expect(self, ranks: int) -> None:
        """From now on lease once this many ranks are there."""
        self._expected = ranks
        self._dispatch()

    async def submit(self, job: Job) -> None:
        """Queue a run."""
        stream = self._streams[job.run_id] = _Stream()
        if self._broken:
            stream.add({"kind": "aborted", "reason": self._broken})
            return
        self._queue.append((job, 1))
        self._dispatch()

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        """What has happened since the last call, once something has; the last event's kind is `done` or `aborted`."""
        stream = self._streams[run_id]
        await stream.news.wait()
        events, stream.events = stream.events, []
        stream.news.clear()
        if events[-1]["kind"] in ("done", "aborted"):
            del self._streams[run_id]
        return events

    async def cancel(self, run_id: str) -> None:
        """Forget a queued run; one under way is let end, and its result is dropped."""
        self._queue = deque((job, number) for job, number in self._queue if job.run_id != run_id)

    async def abort(self, reason: str) -> None:
        """The group cannot serve any more: every run that waits is told so."""
        self._broken = reason
        self._queue.clear()
        self._attempts.clear()
        for stream in self._streams.values():
            stream.add({"kind": "aborted", "reason": reason})

    async def close(self) -> None:
        """No more runs: idle ranks leave at once, the others when they ask."""
        self._closed = True
        for rank in self._ranks.values():
            if rank.waiting is not None and not rank.waiting.done():
                rank.waiting.set_result(None)

    # --- rules ----------------------------------------------------------------------------------------------

    def _idle(self) -> list[str]:
        idle = (name for name, rank in self._ranks.items() if rank.waiting is not None and rank.attempt is None)
        return self._ordered(idle)

    def _ordered(self, names: Any) -> list[str]:
        return sorted(names, key=lambda name: (self._ranks[name].card.machine, self._ranks[name].card.index))

    def _dispatch(self) -> None:
        while self._queue and not (self._exclusive and self._attempts):
            if len(self._ranks) < self._expected:
                return
            chosen = self._packed(self._queue[0][0].config.world_size)
            if chosen is None:
                return
            job, number = self._queue.popleft()
            self._lease(job, number, chosen)

    def _packed(self, count: int) -> list[str] | None:
        """Idle ranks for a run: all on the first machine that has enough, else over as few machines as it takes."""
        by_machine: dict[str, list[str]] = {}
        for name in self._idle():
            by_machine.setdefault(self._ranks[name].card.machine, []).append(name)
        for names in by_machine.values():
            if len(names) >= count:
                return names[:count]
        largest_first = sorted(by_machine.values(), key=len, reverse=True)
        names = list(itertools.chain.from_iterable(largest_first))
        return names[:count] if len(names) >= count else None

    def _lease(self, job: Job, number: int, names: list[str]) -> None:
        lease_id = f"{job.run_id}/{number}"
        attempt = self._attempts[lease_id] = _Attempt(job, lease_id, names, number)
        self._streams[job.run_id].add({"kind": "start", "attempt": number})
        leader = self._ranks[names[0]].card
        for place, name in enumerate(names):
            rank = self._ranks[name]
            rank.attempt = attempt
            assert rank.waiting is not None
            waiting, rank.waiting = rank.waiting, None
            waiting.set_result(
                Lease(
                    lease_id=lease_id,
                    train=job.train,
                    config=job.config,
                    rank=place,
                    device=rank.card.device if job.device == "cuda" else "cpu",
                    backend=job.backend if len(names) > 1 else None,
                    machine=rank.card.machine,
                    store=leader.store,
                    keep=job.keep,
                )
            )

    def _lose(self, name: str) -> None:
        rank = self._ranks.pop(name)
        if rank.waiting is not None and not rank.waiting.done():
            rank.waiting.set_result(None)
        if rank.attempt is not None and name not in rank.attempt.results:
            rank.attempt.lost.add(name)
            self._settle(rank.attempt)

    def _settle(self, attempt: _Attempt) -> None:
        """End an attempt of which every rank has returned or is lost."""
        if len(attempt.results.keys() | attempt.lost) < len(attempt.ranks) or attempt.lease_id not in self._attempts:
            return
        del self._attempts[attempt.lease_id]
        attempt.settled.set()
        for name in attempt.ranks:
            if name in self._ranks:
                self._ranks[name].attempt = None
        if attempt.lost and attempt.cause is None and attempt.number <= self._max_retries:
            # In front: its block is under way.
            self._queue.appendleft((attempt.job, attempt.number + 1))
        else:
            self._streams[attempt.job.run_id].add(_done(attempt))
        self._dispatch()


def _done(attempt: _Attempt) -> dict[str, Any]:
    results = list(attempt.results.values())
    cause = attempt.cause
    if cause is None and attempt.lost:
        count = len(attempt.lost)
        cause = {"outcome": Outcome.KILLED.value, "reason": f"{count} of {len(attempt.ranks)} ranks died"}
    if cause is None:
        cause = next((item for item in results if item["outcome"] != Outcome.OK), {"outcome": Outcome.OK.value})
    return {
        "kind": "done",
        "outcome": cause["outcome"],
        "reason": cause.get("reason", ""),
        "traceback": cause.get("traceback", ""),
        "attempts": attempt.number,
        "results": sorted(results, key=lambda item: int(item["rank"])),
    }
