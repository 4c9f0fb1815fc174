"""The broker: knows every rank by itself, queues runs, leases ranks to them, and keeps the clock of each run.

It is an actor without CPUs, made by `pool`; the class itself knows neither Ray nor PyTorch, so its rules can be
tested alone. All methods are coroutines of one event loop: no two of them run at once between two awaits.

    rank:       join -> (next_lease -> begun, progress, emit ... -> finish) ... -> next_lease gives None: it is over
    Trainable:  submit -> events ... -> the last event has kind `done`; the driver has it -> forget

If the broker's process dies, `pool` makes another, which knows nothing: ranks join again, and Trainables submit again.
It is not Ray that restarts it: short of memory, Ray ends first what it may restart, and with it the clock and the count
of attempts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.cluster.attempt import Attempt, Failures, Queued, out_of_memory
from dmls_ray.cluster.messages import Job, Lease, Leave, Limits, RankCard
from dmls_ray.record import Outcome

PEERS_HAVE_S = 2.0
"""How long the other ranks of a run have to end by themselves after one has failed."""

_BROKERS_MAY_DIE = 3
"""How many may die during one run before it is held for the cause."""

_LOOK_EVERY_S = 0.5
"""How often the clocks of the runs under way are read."""


@dataclass
class _Rank:
    card: RankCard
    waiting: asyncio.Future[Lease | Leave | None] | None = None
    """Set while the rank asks for a lease, which is when it is idle."""
    attempt: Attempt | None = None
    leaves: bool = False
    """It is to end its process when it asks for work."""


@dataclass
class _Stream:
    """Events of a run, kept until the driver has them all: a Trainable that dies is followed by another."""

    events: list[dict[str, Any]] = field(default_factory=list)
    told: int = 0
    readers: int = 0
    """How many Trainables have died over it: what they still wait for is not theirs."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self.news.set()

    def rewind(self) -> None:
        self.told = 0
        self.readers += 1
        if self.events:
            self.news.set()


async def _nobody_knows(card: RankCard) -> None:
    return None


class Broker:
    """Leases ranks to runs.

    Args:
        ranks: how many ranks must have joined before a run is leased any, so that no run is timed while another
            rank still starts.
        exclusive: lease to one run at a time (bench mode), rather than to as many as there are ranks for.
        limits: how long it waits, and how often it tries.
        end_process: ends a rank's process whatever it does; returns at once.
        oom_kills_there: how many processes the kernel has ended for want of memory on a rank's machine.
    """

    def __init__(
        self,
        ranks: int,
        *,
        exclusive: bool = True,
        limits: Limits | None = None,
        end_process: Callable[[RankCard], None] = lambda card: None,
        oom_kills_there: Callable[[RankCard], Awaitable[int | None]] = _nobody_knows,
    ) -> None:
        self._expected = ranks
        self._exclusive = exclusive
        self._limits = limits or Limits()
        self._end_process = end_process
        self._oom_kills_there = oom_kills_there
        self._failures = Failures(self._limits.give_up_after)
        self._ranks: dict[str, _Rank] = {}
        self._queue: deque[Queued] = deque()
        self._streams: dict[str, _Stream] = {}
        self._owners: dict[str, str] = {}
        self._attempts: dict[str, Attempt] = {}
        # Names are this broker's own: one that follows it must not meet what was left behind under the same.
        self._nonce = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()
        self._ended: set[str] = set()
        self._closed = False
        self._broken = ""
        self._broken_groups: set[tuple[str, str]] = set()
        """Trainers' groups of which a rank is known to have died: Train replaces the others with it."""
        self._controllers: list[Any] = []
        self._watcher: asyncio.Task[None] | None = None

    # --- ranks ----------------------------------------------------------------------------------------------

    async def join(self, card: RankCard) -> str:
        """A rank is there; returns its name. The first of a new group says that the trainer's old ranks are lost.

        All of them, and not only the one whose place it takes: a run leased to a rank that is about to be ended would
        leave the others waiting for it.
        """
        for name, rank in self._of(card.trainer).items():
            if rank.card.group != card.group:
                self._lose(name, card=card)
        name = f"{card.trainer}/{card.index}#{self._nonce}-{next(self._numbers)}"
        if card.trainer not in self._ended:
            self._ranks[name] = _Rank(card)
        return name

    async def next_lease(self, name: str) -> Lease | Leave | None:
        """Wait for work; None when there is no more."""
        rank = self._ranks.get(name)
        if self._closed or name.partition("/")[0] in self._ended:
            return None
        if rank is None:
            # Given up as lost, or known to a broker before this one.
            return Leave(join_again=self._nonce not in name)
        waiting = rank.waiting = asyncio.get_running_loop().create_future()
        if rank.leaves:
            self._let_go(rank.card.trainer)
        self._dispatch()
        return await waiting

    async def begun(self, name: str, lease_id: str, oom_kills: int | None) -> None:
        """A rank has taken up its lease."""
        attempt = self._attempt_of(name, lease_id)
        if attempt is not None:
            attempt.begun[name] = oom_kills
            attempt.progressed = time.monotonic()

    async def progress(self, name: str, lease_id: str) -> None:
        """A rank got on with its run."""
        attempt = self._attempt_of(name, lease_id)
        if attempt is not None:
            attempt.progressed = time.monotonic()

    async def emit(self, name: str, lease_id: str, event: dict[str, Any]) -> None:
        """An event of a run under way."""
        attempt = self._attempt_of(name, lease_id)
        if attempt is not None:
            attempt.progressed = time.monotonic()
            self._streams[attempt.job.run_id].add(event)

    async def epoch(self, name: str, lease_id: str, event: dict[str, Any], *, tells: bool) -> bool:
        """A rank of a run that asks has ended an epoch; returns, once it is decided, whether it is to go on.

        Of a run that nobody follows any more, after the death of a broker say, it is not.

        Args:
            name: the rank.
            lease_id: its part in the run.
            event: the epoch.
            tells: whether this rank's event is the run's; those of the others are the same.
        """
        attempt = self._attempt_of(name, lease_id)
        if attempt is None:
            return False
        if tells:
            await self.emit(name, lease_id, event)
        return await attempt.may_go_on(name)

    async def finish(self, name: str, lease_id: str, result: dict[str, Any]) -> bool:
        """A rank's result, of which the first counts; returns whether the rank may stay.

        A rank that failed while others wait for it in a collective must end its process: neither gloo nor NCCL tells
        them in any other way. Where all ranks fail, nobody waits, and all may stay.
        """
        attempt = self._attempt_of(name, lease_id)
        if attempt is None:
            # The run was settled without it, or leased by a broker before this one.
            return True
        attempt.results.setdefault(name, result)
        if self._limits.recycle_above_mib is not None and result.get("rss_mib", 0) > self._limits.recycle_above_mib:
            for rank in self._of(self._ranks[name].card.trainer).values():
                rank.leaves = True
        self._settle(attempt)
        if result["outcome"] == Outcome.OK or result.get("symptom"):
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(attempt.settled.wait(), PEERS_HAVE_S)
        if attempt.settled.is_set():
            return True
        if name in self._ranks:
            self._lose(name)
        return False

    async def end_trainer(self, trainer: str) -> None:
        """A trainer's ranks are to go, and those that it may start anew are not wanted."""
        self._ended.add(trainer)
        for name in self._of(trainer):
            self._lose(name)

    async def rank_failed(self, trainer: str, index: int, *, memory: str = "") -> None:
        """Ray saw a rank's process die; `memory` says so where it was ended for want of memory."""
        for name, rank in self._of(trainer).items():
            if rank.card.index != index:
                continue
            # Known before anything is waited for: its trainer's next group may join meanwhile.
            self._broken_groups.add((trainer, rank.card.group))
            attempt = rank.attempt
            if attempt is not None:
                evidence = memory or await self._kernel_ended(attempt.begun.get(name), rank.card)
                attempt.memory = attempt.memory or evidence
            if name in self._ranks:
                self._lose(name)

    async def _kernel_ended(self, before: int | None, card: RankCard) -> str:
        """Evidence that a rank's process died for want of memory; empty where there is none."""
        now = await self._oom_kills_there(card) if before is not None else None
        return out_of_memory(before, now, card.machine)

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

    async def lives(self) -> None:
        """Never returns: whoever waits for it learns of the end of this process."""
        await asyncio.Event().wait()

    async def submit(self, job: Job, brokers_before: int = 0, *, owner: str = "") -> bool:
        """Queue a run; of one that is known already, all events are told again.

        Args:
            job: the run.
            brokers_before: how many brokers died while it was under way.
            owner: for whom; a run that was submitted for another is not run twice.

        Returns:
            Whether its events are the caller's to follow.
        """
        if self._owners.setdefault(job.run_id, owner) != owner:
            return False
        if job.run_id in self._streams:
            self._streams[job.run_id].rewind()
            return True
        stream = self._streams[job.run_id] = _Stream()
        if self._broken:
            stream.add({"kind": "aborted", "reason": self._broken})
        elif reason := self._failures.give_up(job.trial_id):
            verdict = {"outcome": Outcome.SKIPPED.value, "reason": reason, "traceback": ""}
            stream.add({"kind": "done", **verdict, "attempts": 0, "earlier": [], "results": []})
        elif brokers_before > _BROKERS_MAY_DIE:
            verdict = {"outcome": Outcome.KILLED.value, "reason": f"{brokers_before} brokers died", "traceback": ""}
            stream.add({"kind": "done", **verdict, "attempts": brokers_before, "earlier": [], "results": []})
        else:
            self._queue.append(Queued(job))
            self._dispatch()
        return True

    async def given_up(self, trial_id: str) -> str:
        """Why the further runs of a trial are skipped; empty where they are not."""
        return self._failures.give_up(trial_id)

    async def has_ended(self, trial_id: str, verdict: dict[str, Any]) -> None:
        """A run of the trial has ended elsewhere, under a launcher that this broker does not serve."""
        self._failures.note(trial_id, verdict)

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        """What has happened since the last call, once something has; the last event's kind is `done` or `aborted`.

        A run that is not known is told by one event of kind `unknown`: it was submitted to a broker before this one.
        """
        stream = self._streams.get(run_id)
        if stream is None:
            return [{"kind": "unknown"}]
        reader = stream.readers
        await stream.news.wait()
        if stream.readers != reader:
            return []
        events = stream.events[stream.told :]
        stream.told = len(stream.events)
        stream.news.clear()
        return events

    async def decide(self, run_id: str, attempt: int, epochs: int | None) -> None:
        """Let an attempt at a run go on after so many epochs; None: stop the run, whichever its attempt is by now."""
        for one in self._attempts.values():
            if one.job.run_id == run_id and epochs is None:
                one.decide(epochs=None)
            elif one.job.run_id == run_id and one.number == attempt:
                one.decide(epochs=epochs)
        for queued in [item for item in self._queue if item.job.run_id == run_id and epochs is None and item.earlier]:
            # Its attempt died, and there is to be no other.
            self._queue.remove(queued)
            *earlier, last = queued.earlier
            verdict = {"outcome": last["outcome"], "reason": last["reason"], "traceback": ""}
            done = {"attempts": len(queued.earlier), "earlier": earlier, "results": []}
            self._streams[run_id].add({"kind": "done", **verdict, **done})

    async def forget(self, run_id: str) -> None:
        """The driver has all events of a run."""
        self._streams.pop(run_id, None)

    async def cancel(self, run_id: str) -> None:
        """Forget a queued run; one under way is let end, and its result is dropped."""
        self._queue = deque(item for item in self._queue if item.job.run_id != run_id)

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
        idle = (
            name
            for name, rank in self._ranks.items()
            if rank.waiting is not None and rank.attempt is None and not rank.leaves
        )
        return self._ordered(idle)

    def _ordered(self, names: Any) -> list[str]:
        return sorted(names, key=lambda name: (self._ranks[name].card.machine, self._ranks[name].card.index))

    def _dispatch(self) -> None:
        while self._queue and not (self._exclusive and self._attempts):
            if len(self._ranks) < self._expected:
                return
            chosen = self._packed(self._queue[0].job.config.world_size)
            if chosen is None:
                return
            self._lease(self._queue.popleft(), chosen)

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

    def _lease(self, queued: Queued, names: list[str]) -> None:
        job = queued.job
        lease_id = f"{self._nonce}/{job.run_id}/{len(queued.earlier) + 1}"
        attempt = Attempt(job, lease_id, names, queued.earlier, queued.charged)
        self._attempts[lease_id] = attempt
        self._streams[job.run_id].add({"kind": "start", "attempt": attempt.number})
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._watch())
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
                    asks=job.asks,
                )
            )

    async def _watch(self) -> None:
        """End what takes too long, by this clock: a rank that hangs says nothing, and Ray does not see it."""
        while self._attempts:
            for attempt in list(self._attempts.values()):
                if reason := attempt.is_overdue(self._limits):
                    self._cut_short(attempt, reason)
            await asyncio.sleep(_LOOK_EVERY_S)

    def _cut_short(self, attempt: Attempt, reason: str) -> None:
        attempt.overdue = reason
        for name in attempt.waits_for:
            self._end_process(self._ranks[name].card)
            self._lose(name)

    def _of(self, trainer: str) -> dict[str, _Rank]:
        return {name: rank for name, rank in self._ranks.items() if rank.card.trainer == trainer}

    def _let_go(self, trainer: str) -> None:
        """A trainer's ranks are to be replaced: once all are idle, since Train replaces all of them when one ends."""
        ranks = self._of(trainer)
        if all(rank.leaves and rank.waiting is not None and rank.attempt is None for rank in ranks.values()):
            for name, rank in ranks.items():
                assert rank.waiting is not None
                rank.waiting.set_result(Leave())
                self._lose(name)

    def _attempt_of(self, name: str, lease_id: str) -> Attempt | None:
        attempt = self._attempts.get(lease_id)
        return attempt if attempt is not None and name in attempt.waits_for else None

    def _lose(self, name: str, *, card: RankCard | None = None) -> None:
        """A rank does not serve any more; `card` is the one of its successor, which knows what happened since."""
        rank = self._ranks.pop(name)
        if rank.waiting is not None and not rank.waiting.done():
            rank.waiting.set_result(None)
        attempt = rank.attempt
        if attempt is None or name not in attempt.waits_for:
            return
        attempt.lost[name] = ""
        group = (rank.card.trainer, rank.card.group)
        if card is None:
            self._broken_groups.add(group)
        elif group in self._broken_groups:
            # What ended its neighbour is no evidence of this one's end.
            attempt.replaced.add(name)
        elif card.machine == rank.card.machine:
            attempt.memory = attempt.memory or out_of_memory(attempt.begun.get(name), card.oom_kills, card.machine)
        self._settle(attempt)

    def _settle(self, attempt: Attempt) -> None:
        """End an attempt of which every rank has returned or is lost."""
        if attempt.waits_for or attempt.lease_id not in self._attempts:
            return
        del self._attempts[attempt.lease_id]
        attempt.settled.set()
        for name in attempt.ranks:
            if name in self._ranks:
                self._ranks[name].attempt = None
        verdict = attempt.verdict()
        again = attempt.again(verdict, self._limits) if attempt.lost and not attempt.stopped else None
        if again is not None:
            # In front: its block is under way.
            self._queue.appendleft(again)
        else:
            self._failures.note(attempt.job.trial_id, verdict)
            self._streams[attempt.job.run_id].add(
                {
                    "kind": "done",
                    **verdict,
                    "attempts": attempt.number,
                    "earlier": attempt.earlier,
                    "results": sorted(attempt.results.values(), key=lambda item: int(item["rank"])),
                }
            )
        self._dispatch()
