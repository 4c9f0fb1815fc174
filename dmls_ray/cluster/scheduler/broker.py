"""The broker: knows every rank by itself, queues runs, leases ranks to them, and keeps the clock of each run.

A rank joins, is leased and returned, or is lost, by itself; its trainer holds the ranks of one machine. Trainers
come and go with the machines of the cluster: a run that finds no ranks any more waits a while for those that are gone,
and is skipped then.

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
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.cluster.messages import Job, Lease, Leave, Limits, RankRegistration
from dmls_ray.cluster.placement import RankRequest, place_ranks
from dmls_ray.cluster.scheduler.attempt import Attempt, Failures, Queued, out_of_memory
from dmls_ray.records.outcome import Outcome

PEERS_HAVE_S = 2.0
"""How long the other ranks of a run have to end by themselves after one has failed."""

_PEERS_HEAR_AFTER_S = 2.0
"""After how long the other ranks of a run in which one was lost are told so: of a machine that is cut off they hear
nothing."""

_PEERS_END_AFTER_S = 8.0
"""After how long their processes are ended, where that did not help."""

_DEATHS_ARE_TOLD_WITHIN_S = 20.0
"""How long the death of a process may take to be told, on a busy machine too."""

_BROKERS_MAY_DIE = 3
"""How many may die during one run before it is held for the cause."""

_COMES_WITHIN_S = 600.0
"""How long runs that find no ranks wait for a trainer that was announced: its machine may prepare data first, and may
never have room for it."""

_ASKS_WITHIN_S = 10.0
"""How long a rank that has joined, or whose run has ended, may take to ask for work before runs go on without it."""

_LOOK_EVERY_S = 0.5
"""How often the clocks of the runs under way are read."""


@dataclass
class _Rank:
    card: RankRegistration
    waiting: asyncio.Future[Lease | Leave | None] | None = None
    """Set while the rank asks for a lease, which is when it is idle."""
    attempt: Attempt | None = None
    lease: Lease | None = None
    """Its last."""
    interruption: asyncio.Future[tuple[str, ...]] | None = None
    """Set while the rank asks whether its run is broken."""
    leaves: bool = False
    """It is to end its process when it asks for work."""
    free_since: float = field(default_factory=time.monotonic)
    """When it has joined, or its last run has ended."""


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


async def _nobody_knows(card: RankRegistration) -> None:
    return None


class Broker:
    """Leases ranks to runs.

    Args:
        awaited: trainer -> how many ranks of it must be there before a run is leased any, so that no run is timed while
            another rank of its machines still starts.
        later: those of them that runs need not wait for.
        exclusive: lease to one run at a time (bench mode), rather than to as many as there are ranks for.
        limits: how long it waits, and how often it tries.
        end_process: ends a rank's process whatever it does; returns at once.
        oom_kills_there: how many processes the kernel has ended for want of memory on a rank's machine.
    """

    def __init__(
        self,
        awaited: Mapping[str, int],
        *,
        later: Collection[str] = (),
        exclusive: bool = True,
        limits: Limits | None = None,
        end_process: Callable[[RankRegistration], None] = lambda card: None,
        oom_kills_there: Callable[[RankRegistration], Awaitable[int | None]] = _nobody_knows,
    ) -> None:
        self._sizes = dict(awaited)
        """Of each trainer that is there or is to come, how many ranks it has."""
        self._coming = dict.fromkeys(later, time.monotonic())
        """Trainers that runs need not wait for, until all of their ranks have joined for the first time, and since when
        they are to come."""
        self._there: Counter[str] = Counter()
        """By trainer, how many ranks are."""
        self._held: Counter[str] = Counter()
        """Likewise by machine."""
        self._changed = time.monotonic()
        """When ranks were last lost for good, or announced."""
        self._left: dict[str, None] = {}
        """Machines that have left, and are not back."""
        self._exclusive = exclusive
        self._limits = limits or Limits()
        self._end_process = end_process
        self._oom_kills_there = oom_kills_there
        self._failures = Failures(self._limits.give_up_after)
        self._ranks: dict[str, _Rank] = {}
        self._idle: dict[str, set[str]] = {}
        """By machine, in the order in which runs take them: ranks that wait for work."""
        self._places: dict[str, int] = {}
        self._queue: deque[Queued] = deque()
        self._streams: dict[str, _Stream] = {}
        self._owners: dict[str, str] = {}
        self._attempts: dict[str, Attempt] = {}
        # Names are this broker's own: one that follows it must not meet what was left behind under the same.
        self._nonce = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()
        self._ended: set[str] = set()
        self._refusals: dict[str, str] = {}
        self._closed = False
        self._broken = ""
        self._broken_groups: set[tuple[str, str]] = set()
        """Trainers' groups of which a rank is known to have died: Train replaces the others with it."""
        self._controllers: dict[str, Any] = {}
        self._watcher: asyncio.Task[None] | None = None

    # --- ranks ----------------------------------------------------------------------------------------------

    async def join(self, card: RankRegistration) -> str:
        """A rank is there; returns its name. The first of a new group says that the trainer's old ranks are lost.

        All of them, and not only the one whose place it takes: a run leased to a rank that is about to be ended would
        leave the others waiting for it.
        """
        for name, rank in self._of(card.trainer).items():
            # Of one that joins twice, since the network failed over the answer, the first is nobody's.
            is_former = rank.card.group != card.group or rank.card.index == card.index
            if is_former and name in self._ranks:
                self._lose(name, card=card)
        name = f"{card.trainer}/{card.index}#{self._nonce}-{next(self._numbers)}"
        if card.trainer not in self._ended:
            self._ranks[name] = _Rank(card)
            self._there[card.trainer] += 1
            self._held[card.machine] += 1
            self._left.pop(card.machine, None)
            if self._there[card.trainer] >= self._sizes.get(card.trainer, 0):
                self._coming.pop(card.trainer, None)
            if self._places.get(card.machine) != card.machine_order:
                self._places[card.machine] = card.machine_order
                in_order = sorted(self._places, key=self._places.__getitem__)
                self._idle = {machine: self._idle.get(machine, set()) for machine in in_order}
        return name

    async def next_lease(self, name: str) -> Lease | Leave | None:
        """Wait for work; None when there is no more."""
        rank = self._ranks.get(name)
        if self._closed or name.partition("/")[0] in self._ended:
            return None
        if rank is None:
            # Given up as lost, or known to a broker before this one.
            return Leave(join_again=self._nonce not in name)
        if rank.attempt is not None and rank.attempt.is_waiting_for(name) and name not in rank.attempt.begun:
            return rank.lease  # which did not arrive: the network failed
        waiting = rank.waiting = asyncio.get_running_loop().create_future()
        if rank.leaves:
            self._let_go(rank.card.trainer)
        elif rank.attempt is None:
            self._idle[rank.card.machine].add(name)
        self._dispatch()
        return await waiting

    async def interruption(self, name: str) -> tuple[str, ...]:
        """Wait until the rank is to wait no more for others of its run that are gone; returns their addresses, none
        where it need not ask any more.
        """
        rank = self._ranks.get(name)
        if self._closed or rank is None:
            return ()
        rank.interruption = asyncio.get_running_loop().create_future()
        return await rank.interruption

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

    async def epoch(self, name: str, lease_id: str, event: dict[str, Any], *, number: int, tells: bool) -> bool:
        """A rank of a run that asks has ended an epoch; returns, once it is decided, whether it is to go on.

        Of a run that nobody follows any more, after the death of a broker say, it is not.

        Args:
            name: the rank.
            lease_id: its part in the run.
            event: the epoch.
            number: how many this rank has ended; one that is told twice, because the network failed, counts once.
            tells: whether this rank's event is the run's; those of the others are the same.
        """
        attempt = self._attempt_of(name, lease_id)
        if attempt is None:
            return False
        if tells and number > attempt.asked.get(name, 0):
            await self.emit(name, lease_id, event)
        return await attempt.may_go_on(name, number)

    async def finish(self, name: str, lease_id: str, result: dict[str, Any]) -> bool:
        """A rank's result, of which the first counts; returns whether the rank may stay.

        A rank that failed while others wait for it in a collective must end its process: neither gloo nor NCCL tells
        them in any other way. Where all ranks fail, nobody waits, and all may stay.
        """
        attempt = self._attempt_of(name, lease_id)
        if attempt is None:
            # The run was settled without it, or leased by a broker before this one.
            return True
        if attempt.interrupted and result["outcome"] != Outcome.OK:
            # What it was waiting for was broken off, and of that it may tell in any words.
            result["symptom"] = True
        attempt.take(name, result)
        if result.get("symptom"):
            attempt.lost_addresses.add(self._ranks[name].card.store[0])
        if self._limits.recycle_above_mib is not None and result.get("rss_mib", 0) > self._limits.recycle_above_mib:
            for other, rank in self._of(self._ranks[name].card.trainer).items():
                rank.leaves = True
                self._idle[rank.card.machine].discard(other)
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

    async def end_trainer(self, trainer: str, *, left: str = "", refused: str = "") -> None:
        """A trainer's ranks are to go, and those that it may start anew are not wanted.

        Args:
            trainer: its name.
            left: its machine, where that has left the cluster: no run is charged for it.
            refused: why its ranks cannot serve, where they cannot.
        """
        if refused:
            self._refusals[trainer] = refused
        self._ended.add(trainer)
        self._sizes.pop(trainer, None)
        self._coming.pop(trainer, None)
        self._changed = time.monotonic()
        if left:
            self._left[left] = None
        for name in self._of(trainer):
            if name in self._ranks:
                self._lose(name, left=left)
        self._dispatch()

    async def refusal(self, trainer: str) -> str:
        """Why a trainer's ranks cannot serve; empty where nothing is known of it."""
        return self._refusals.get(trainer, "")

    async def rank_failed(self, trainer: str, index: int, *, memory: str = "", left: bool = False) -> None:
        """Ray saw a rank's process die.

        Args:
            trainer: whose rank it was.
            index: its number in that trainer.
            memory: says so where it was ended for want of memory.
            left: whether its machine is gone with it.
        """
        for name, rank in self._of(trainer).items():
            if rank.card.index != index:
                continue
            # Known before anything is waited for: its trainer's next group may join meanwhile.
            self._broken_groups.add((trainer, rank.card.group))
            attempt = rank.attempt
            if attempt is not None and not left:
                evidence = memory or await self._kernel_ended(attempt.begun.get(name), rank.card)
                attempt.memory = attempt.memory or evidence
            if name in self._ranks:
                self._lose(name, left=rank.card.machine if left else "")

    async def _kernel_ended(self, before: int | None, card: RankRegistration) -> str:
        """Evidence that a rank's process died for want of memory; empty where there is none."""
        now = await self._oom_kills_there(card) if before is not None else None
        return out_of_memory(before, now, card.machine)

    async def controlled_by(self, trainer: str, controller: Any) -> None:
        """A trainer's controller tells of itself."""
        self._controllers[trainer] = controller

    async def controllers(self) -> dict[str, Any]:
        """The actors that control trainers, by trainer, ended ones included."""
        return self._controllers

    # --- runs -----------------------------------------------------------------------------------------------

    async def expect(self, trainer: str, ranks: int, *, later: bool = False) -> None:
        """A trainer is to come with so many ranks; while it is `later`, runs that find others do not wait for it.

        One whose machine has left meanwhile does not come: another thread may have said so before.
        """
        if trainer in self._ended:
            return
        self._sizes[trainer] = ranks
        self._changed = time.monotonic()
        if later:
            self._coming[trainer] = time.monotonic()
        self._dispatch()

    async def wait_for_death(self) -> None:
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
        if epochs is not None:
            return
        # What is to be run again stands before all that has not been begun, which may be thousands.
        again = itertools.takewhile(lambda item: item.earlier, self._queue)
        for queued in [item for item in again if item.job.run_id == run_id]:
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
            if rank.interruption is not None and not rank.interruption.done():
                rank.interruption.set_result(())

    # --- rules ----------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        while self._queue and not (self._exclusive and self._attempts):
            if any(self._there[trainer] < size for trainer, size in self._sizes.items() if trainer not in self._coming):
                return
            if self._exclusive and self._is_one_about_to_ask():
                self._keep_watch()
                return
            need = RankRequest.of(self._queue[0].job.config)
            chosen = place_ranks({machine: len(names) for machine, names in self._idle.items()}, need)
            if chosen:
                self._lease(self._queue.popleft(), self._taken(chosen))
            elif self._is_there_room_for(need) or self._waits_for_ranks_until() > time.monotonic():
                self._keep_watch()
                return
            else:
                self._skip(self._queue.popleft(), need)

    def _is_one_about_to_ask(self) -> bool:
        """Whether a rank is still on its way to ask for work.

        A run that does not wait for it takes whichever rank was quicker: equal runs would go on unlike machines, and
        beside what that rank still does. One that hangs is waited for once, and not before every run.
        """
        since = time.monotonic() - _ASKS_WITHIN_S
        return any(rank.waiting is None and rank.free_since > since for rank in self._ranks.values())

    def _taken(self, chosen: Mapping[str, int]) -> list[str]:
        """So many idle ranks of each machine, those with the least numbers."""
        taken: list[str] = []
        for machine, count in chosen.items():
            by_number = sorted(self._idle[machine], key=lambda name: (self._ranks[name].card.index, name))
            taken += by_number[:count]
            self._idle[machine] -= set(by_number[:count])
        return taken

    def _is_there_room_for(self, need: RankRequest) -> bool:
        """Whether the run will find its ranks once others have given theirs back."""
        return bool(place_ranks({machine: self._held[machine] for machine in self._idle}, need))

    def _waits_for_ranks_until(self) -> float:
        come = [since + _COMES_WITHIN_S for since in self._coming.values()]
        return max([self._changed + self._limits.wait_for_ranks, *come])

    def _skip(self, queued: Queued, need: RankRequest) -> None:
        """There are no ranks for a run any more."""
        left = f" since {', '.join(self._left)} left" if self._left else ""
        reason = (
            f"{need} finds {len(self._ranks)} ranks{left}, after {self._limits.wait_for_ranks:g} s (wait_for_ranks); "
            "the same command runs it once its machines are back."
        )
        verdict = {"outcome": Outcome.SKIPPED.value, "reason": reason, "traceback": ""}
        told = {"attempts": len(queued.earlier), "earlier": queued.earlier, "results": []}
        self._streams[queued.job.run_id].add({"kind": "done", **verdict, **told})

    def _lease(self, queued: Queued, names: list[str]) -> None:
        job = queued.job
        # No two are alike, though a run that was skipped is submitted again, and counts from 1: ranks meet under this
        # name in a store that still has what was told under the earlier one.
        lease_id = f"{self._nonce}-{next(self._numbers)}/{job.run_id}/{len(queued.earlier) + 1}"
        attempt = Attempt(job, lease_id, names, queued.earlier, queued.charged)
        about = {self._ranks[name].card.machine: self._ranks[name].card.machine_info for name in names}
        attempt.machines = [told for told in about.values() if told]
        self._attempts[lease_id] = attempt
        self._streams[job.run_id].add({"kind": "start", "attempt": attempt.number})
        self._keep_watch()
        leader = self._ranks[names[0]].card
        machines = tuple(self._ranks[name].card.machine for name in names)
        for place, name in enumerate(names):
            rank = self._ranks[name]
            rank.attempt = attempt
            assert rank.waiting is not None
            waiting, rank.waiting = rank.waiting, None
            rank.lease = Lease(
                lease_id=lease_id,
                train=job.train,
                config=job.config,
                rank=place,
                device=rank.card.device if job.device == "cuda" else "cpu",
                backend=job.backend if len(names) > 1 else None,
                machine=rank.card.machine,
                store=leader.store,
                artifacts=job.artifacts,
                prunable=job.prunable,
                machines=machines,
            )
            waiting.set_result(rank.lease)

    def _keep_watch(self) -> None:
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        """End what takes too long, by this clock: a rank that hangs says nothing, and Ray does not see it."""
        while self._attempts or self._queue:
            for attempt in list(self._attempts.values()):
                if reason := attempt.is_overdue(self._limits):
                    self._cut_short(attempt, reason)
                else:
                    self._free_those_who_wait(attempt)
            self._end_those_who_hang()
            self._dispatch()
            await asyncio.sleep(_LOOK_EVERY_S)

    def _free_those_who_wait(self, attempt: Attempt) -> None:
        """End an attempt whose other ranks do not see that one was lost: nothing comes from a machine that is gone.

        Where a rank says that another is gone, and none is known to be, the network failed between them: for one side
        alone, it may be.
        """
        lost_at = min(attempt.lost_at, attempt.missed_at + _DEATHS_ARE_TOLD_WITHIN_S)
        since = time.monotonic() - lost_at
        if since > _PEERS_HEAR_AFTER_S and not attempt.interrupted:
            attempt.interrupted = True
            for name in attempt.waits_for:
                asks = self._ranks[name].interruption
                if asks is not None and not asks.done():
                    asks.set_result(tuple(attempt.lost_addresses))
        elif since > _PEERS_END_AFTER_S:
            for name in attempt.waits_for:
                self._end_process(self._ranks[name].card)
                self._lose(name, beside=bool(attempt.lost), why=attempt.missed)

    def _end_those_who_hang(self) -> None:
        """End ranks that have not asked for work for as long as a run may go without progress: Train replaces them."""
        if self._limits.stall_timeout is None:
            return
        since = time.monotonic() - self._limits.stall_timeout
        for name, rank in list(self._ranks.items()):
            if rank.attempt is None and rank.waiting is None and rank.free_since < since:
                self._end_process(rank.card)
                self._lose(name)

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
        return attempt if attempt is not None and attempt.is_waiting_for(name) else None

    def _lose(
        self, name: str, *, card: RankRegistration | None = None, left: str = "", beside: bool = False, why: str = ""
    ) -> None:
        """A rank does not serve any more.

        Args:
            name: the rank.
            card: that of its successor, which knows what happened since.
            left: its machine, where that has left the cluster.
            beside: whether it was ended because it waits for one that was lost.
            why: what is known of its end besides.
        """
        rank = self._ranks.pop(name)
        self._there[rank.card.trainer] -= 1
        self._held[rank.card.machine] -= 1
        self._idle[rank.card.machine].discard(name)
        if rank.waiting is not None and not rank.waiting.done():
            rank.waiting.set_result(None)
        if rank.interruption is not None and not rank.interruption.done():
            rank.interruption.set_result(())
        attempt = rank.attempt
        if attempt is None or not attempt.is_waiting_for(name):
            return
        group = (rank.card.trainer, rank.card.group)
        # What ended its neighbour is no evidence of this one's end.
        replaced = card is not None and group in self._broken_groups
        attempt.lose(name, f"{left} has left" if left else why, blameless=bool(left) or beside or replaced)
        attempt.lost_addresses.add(rank.card.store[0])
        if card is None:
            self._broken_groups.add(group)
        elif not replaced and card.machine == rank.card.machine:
            attempt.memory = attempt.memory or out_of_memory(attempt.begun.get(name), card.oom_kills, card.machine)
        self._settle(attempt)

    def _settle(self, attempt: Attempt) -> None:
        """End an attempt of which every rank has returned or is lost."""
        if not attempt.is_over or attempt.lease_id not in self._attempts:
            return
        del self._attempts[attempt.lease_id]
        attempt.settled.set()
        for name in attempt.ranks:
            rank = self._ranks.get(name)
            if rank is None:
                continue
            rank.attempt, rank.free_since = None, time.monotonic()
            if rank.waiting is not None and not rank.leaves:
                # It has asked for work before the others of its run had ended.
                self._idle[rank.card.machine].add(name)
        for trainer in {name.partition("/")[0] for name in attempt.ranks}:
            # So has one that is to leave, which could not be let go then.
            self._let_go(trainer)
        verdict = attempt.verdict()
        may_try = (attempt.lost or attempt.is_disconnected) and not attempt.stopped
        again = attempt.again(verdict, self._limits) if may_try else None
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
                    "machines": attempt.machines,
                }
            )
        self._dispatch()
