"""`Dispatcher`: starts queued runs on ranks, and retries or finishes a run once all of its ranks have returned."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable

from dmls_ray.cluster.messages import Job, Lease, RankRegistration
from dmls_ray.cluster.resources import RankRequest, place_ranks
from dmls_ray.cluster.scheduler.attempt import Attempt, now
from dmls_ray.cluster.scheduler.lanes import LaneQueues
from dmls_ray.cluster.scheduler.membership import Lane, Membership
from dmls_ray.cluster.scheduler.retry import FailureCounter, Queued, retry
from dmls_ray.cluster.scheduler.watchdog import CHECK_INTERVAL_S, Watchdog
from dmls_ray.config.options import RunLimits
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EarlierAttempt, RunAborted, RunEvent, RunFinished, SkipKind, Verdict, is_last
from dmls_ray.training.rank import rank_of_run


class Dispatcher:
    """The runs that wait or are under way, and the rules by which they get ranks.

    Args:
        members: the ranks.
        exclusive: lease the ranks of a lane to one run at a time (bench mode), not to as many as there are ranks for.
        limits: timeouts, retries and the memory of ranks.
        end_process: kills the process of a rank, whatever it does; returns whether it is gone.
    """

    def __init__(
        self,
        members: Membership,
        *,
        exclusive: bool,
        limits: RunLimits,
        end_process: Callable[[RankRegistration], Awaitable[bool]],
    ) -> None:
        self.members = members
        self._exclusive = exclusive
        self._limits = limits
        self._end_process = end_process
        self.queues = LaneQueues(members.lanes)
        self.streams = EventStreams()
        self.failures = FailureCounter(limits.give_up_after)
        self.attempts: dict[str, Attempt] = {}
        """Attempts under way, by lease_id."""
        self.aborted: RunAborted | None = None
        """Why no run can be served any more."""
        self._leases = itertools.count()
        self._watchdog = Watchdog(limits, members, self._kill, self.give_up)
        self._watching: asyncio.Task[None] | None = None
        self._killing: set[asyncio.Future[bool]] = set()

    def submit(self, job: Job) -> None:
        """Queue a run."""
        self.queues.add(Queued(job))
        self.dispatch()

    def end_block(self, block: int) -> None:
        """Free the lane of a block whose runs have all ended."""
        self.queues.end_block(block)
        self.dispatch()

    def dispatch(self, *lanes: Lane) -> None:
        """Start or skip runs as far as that is possible now.

        Args:
            lanes: those on which something has changed; without them, all.
        """
        given = self.queues.give_blocks()
        for lane in {*given, *lanes} if lanes else list(self.members.lanes.values()):
            self._dispatch_on(lane)
        if (self.queues or self.attempts) and (self._watching is None or self._watching.done()):
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def _dispatch_on(self, lane: Lane) -> None:
        """Start or skip the runs at the front of a lane's queue."""
        queue = self.queues.of(lane)
        while queue and lane.is_complete:
            # In bench mode one run at a time, and once all ranks have asked for work.
            if self._exclusive and (lane.under_way or lane.has_rank_not_yet_idle):
                break
            request = RankRequest.of(queue[0].job.config)
            if counts := place_ranks(lane.idle_slots, request):
                self._start(queue.popleft(), lane, lane.choose_idle(counts))
                continue
            # The run gets its ranks once others have returned theirs, or once missing machines are back.
            may_fit_later = bool(place_ranks(lane.slots, request))
            if may_fit_later or self.members.wait_until(self._limits.wait_for_ranks) > now():
                break
            queued = queue.popleft()
            departed = f" since {', '.join(self.members.departed)} left" if self.members.departed else ""
            reason = (
                f"{request} found only {len(lane.ranks)} ranks{departed} after "
                f"{self._limits.wait_for_ranks:g} s (wait_for_ranks); the same command runs it once its machines are "
                "back."
            )
            self.streams.add(queued.job.run_id, skipped(reason, SkipKind.NO_RANKS, queued.earlier))

    async def _watch(self) -> None:
        """Look at the clocks until no run is left."""
        try:
            while self.queues or self.attempts:
                self._watchdog.check(list(self.attempts.values()))
                self.queues.leave_broken_lanes()
                self.dispatch()
                await asyncio.sleep(CHECK_INTERVAL_S)
        except Exception as error:
            # Without its clocks the scheduler might wait for ever.
            self.abort(f"the scheduler failed: {type(error).__name__}: {error}")
            raise

    def _start(self, queued: Queued, lane: Lane, names: list[str]) -> None:
        """Lease ranks of a lane to a run."""
        job, ranks = queued.job, [self.members.ranks[name] for name in names]
        # Unique also for a run that is submitted again after it was skipped: the store in which its ranks meet may
        # still have keys of the earlier lease.
        lease_id = f"{next(self._leases)}/{job.run_id}/{len(queued.earlier) + 1}"
        attempt = Attempt(job, lease_id, names, queued.earlier, queued.retries_used, lane=lane.number)
        infos = {rank.registration.machine: rank.registration.machine_info for rank in ranks}
        attempt.machines = [info for info in infos.values() if info]
        self.attempts[lease_id] = attempt
        lane.under_way.add(lease_id)
        self.streams.add(job.run_id, attempt.start_event())

        machines = tuple(rank.registration.machine for rank in ranks)
        store = ranks[0].registration.store
        for number, rank in enumerate(ranks):
            info = rank_of_run(
                number,
                job.config,
                device=job.device,
                gpu=rank.registration.device,
                backend=job.backend,
                store_address=store,
                name=lease_id,
                machine=rank.registration.machine,
                machines=machines,
                identity=job.identity,
                artifacts=job.artifacts,
                prunable=job.prunable,
            )
            rank.lease = Lease(lease_id=lease_id, job=job, rank=info)
            rank.attempt = attempt
            rank.answer(rank.lease)
            rank.waiting = None

    def attempt_of(self, name: str, lease_id: str) -> Attempt | None:
        """The attempt of a lease; None if it does not wait for this rank any more."""
        attempt = self.attempts.get(lease_id)
        return attempt if attempt is not None and attempt.is_waiting_for(name) else None

    def progress_of(self, run_id: str) -> list[RunEvent]:
        """How long ago a run made progress; empty if no attempt at it is under way."""
        attempts = self.attempts.values()
        return [attempt.progress_event() for attempt in attempts if attempt.job.run_id == run_id]

    def lose(
        self, name: str, *, replaced: bool = False, departed: str = "", was_waiting: bool = False, reason: str = ""
    ) -> None:
        """Remove a rank that does not serve any more.

        Args:
            name: the rank.
            replaced: whether Train replaces it together with a dead neighbour, of which Ray has reported.
            departed: its machine, if that has left the cluster.
            was_waiting: whether it was killed because it waits for a lost rank.
            reason: what else is known of its end.
        """
        attempt = self.members.remove(name).attempt
        if attempt is None or not attempt.is_waiting_for(name):
            return
        reason = f"{departed} has left" if departed else reason
        not_at_fault = bool(departed) or was_waiting or replaced
        attempt.lose(name, reason, not_at_fault=not_at_fault, was_waiting=was_waiting)
        self.settle(attempt)

    def _kill(self, name: str, *, was_waiting: bool = False, reason: str = "") -> None:
        """End the process of a rank, which is lost. Where that fails, the rank or its machine does not come back."""
        task = asyncio.ensure_future(self._end_process(self.members.ranks[name].registration))
        self._killing.add(task)
        task.add_done_callback(self._killing.discard)
        self.lose(name, was_waiting=was_waiting, reason=reason)

    def give_up(self, name: str, reason: str, *, is_lost: bool = False) -> None:
        """Continue without a trainer whose ranks cannot serve, or end all runs if they count on it.

        Args:
            name: the trainer.
            reason: what happened.
            is_lost: whether another start of the sweep is likely to succeed.
        """
        trainer = self.members.trainers.get(name)
        if trainer is None:
            return
        if trainer.expected.is_optional:
            self.members.refusals[name] = reason
            self.end_ranks_of(name)
        else:
            self.abort(reason, is_lost=is_lost)

    def end_ranks_of(self, trainer: str, *, departed: str = "") -> None:
        """Remove the ranks of a trainer, and accept no new ones from it."""
        self.members.end_trainer(trainer)
        for name in self.members.of_trainer(trainer):
            if name in self.members.ranks:
                self.lose(name, departed=departed)
        self.queues.leave_broken_lanes()
        self.dispatch()

    def abort(self, reason: str, *, is_lost: bool = False) -> None:
        """End all runs: the worker group cannot serve any more."""
        self.aborted = RunAborted(reason=reason, is_lost=is_lost)
        self.queues.clear()
        self.attempts.clear()
        self.streams.abort(self.aborted)

    def settle(self, attempt: Attempt) -> None:
        """Retry or finish a run once every rank of its attempt has returned or is lost."""
        if not attempt.is_over or attempt.lease_id not in self.attempts:
            return
        del self.attempts[attempt.lease_id]
        lane = self.members.lanes[attempt.lane]
        lane.under_way.discard(attempt.lease_id)
        attempt.settled.set()
        for name in attempt.ranks:
            rank = self.members.ranks.get(name)
            if rank is not None:
                rank.attempt, rank.free_since = None, now()
        verdict = attempt.verdict()
        again = retry(attempt, verdict, self._limits)
        if again is not None:
            self.queues.put_back(again)
        else:
            self.failures.note(attempt.job.trial_id, verdict)
            self.streams.add(attempt.job.run_id, finished_run(attempt, verdict))
        self.dispatch(lane)


def skipped(reason: str, kind: SkipKind, earlier: tuple[EarlierAttempt, ...] = ()) -> RunFinished:
    """The end of a run that was not started, or not started again after earlier attempts."""
    verdict = Verdict(outcome=Outcome.SKIPPED, reason=reason, skip=kind)
    return RunFinished(verdict=verdict, attempts=len(earlier), earlier=earlier)


def finished_run(attempt: Attempt, verdict: Verdict) -> RunFinished:
    """The end of a run with this attempt."""
    return RunFinished(
        verdict=verdict,
        attempts=attempt.number,
        earlier=tuple(attempt.earlier),
        results=tuple(sorted(attempt.results.values(), key=lambda result: result.rank)),
        machines=tuple(attempt.machines),
        lane=attempt.lane,
    )


NEWS_INTERVAL_S = 10.0
"""How long a reader waits for events. An answer without events shows that the scheduler is alive."""


class EventStreams:
    """The events of all runs that the driver still follows."""

    def __init__(self) -> None:
        self._unread: dict[str, asyncio.Queue[RunEvent]] = {}
        self._owners: dict[str, str] = {}
        """Owner of each run that was ever submitted."""

    def open(self, run_id: str, owner: str) -> bool:
        """Open the stream of a run; returns False if the run belongs to another owner."""
        if self._owners.setdefault(run_id, owner) != owner:
            return False
        self._unread[run_id] = asyncio.Queue()
        return True

    def add(self, run_id: str, event: RunEvent) -> None:
        """Add an event of a run."""
        self._unread[run_id].put_nowait(event)

    def abort(self, event: RunAborted) -> None:
        """End all streams. A stream that had ended is read no more."""
        for unread in self._unread.values():
            unread.put_nowait(event)

    def forget(self, run_id: str) -> None:
        """Drop the events of a run."""
        self._unread.pop(run_id, None)

    async def read(self, run_id: str) -> list[RunEvent]:
        """Events since the last call, as soon as there are some; none after `NEWS_INTERVAL_S`."""
        unread, events = self._unread[run_id], list[RunEvent]()
        with contextlib.suppress(TimeoutError):
            events.append(await asyncio.wait_for(unread.get(), NEWS_INTERVAL_S))
        while not unread.empty() and not (events and is_last(events[-1])):
            events.append(unread.get_nowait())
        return events
