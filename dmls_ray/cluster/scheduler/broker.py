"""The broker: queues runs, leases ranks to them, and follows each run to its end.

Each rank joins, is leased and returned, or is lost, independently of the others. Its trainer holds the ranks of one
machine; trainers come and go with the machines of the cluster.

The broker is an actor without CPUs that `worker_group` starts. The class itself knows neither Ray nor PyTorch, so its
rules are tested as plain asyncio. All methods are coroutines of one event loop: between two awaits, only one runs.

    rank:       join -> (next_lease -> begun, progress, emit ... -> finish) ... -> next_lease returns None: no more work
    Trainable:  submit -> events ... -> RunFinished; once the driver has it -> forget

If the broker's process dies, the sweep starts again. It is not a restartable actor: Ray's memory monitor kills
restartable actors first, which would lose the timers and attempt counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.cluster.messages import ExpectedTrainer, Job, Lease, Leave, Observe, RankRegistration
from dmls_ray.cluster.scheduler.attempt import Attempt
from dmls_ray.cluster.scheduler.clock import now
from dmls_ray.cluster.scheduler.dispatcher import skipped
from dmls_ray.cluster.scheduler.retry import Queued
from dmls_ray.cluster.scheduler.trainer_calls import TrainerCalls
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import (
    CollectiveWait,
    EpochEnded,
    RankResult,
    RunEvent,
    RunFinished,
    SkipKind,
    Verdict,
)

PEERS_FAIL_WITHIN_S = 2.0
"""Time for the other ranks of a run to end by themselves after one has failed."""


class Broker(TrainerCalls):
    """The calls that ranks and Trainables make to the scheduler, besides those of trainers."""

    def __init__(self, expected: Mapping[str, ExpectedTrainer], **options: Any) -> None:
        super().__init__(expected, **options)
        self._closed = False

    async def join(self, registration: RankRegistration) -> str:
        """Add a rank; returns its name. The first rank of a new group means that all old ranks of its trainer are lost.

        All of them, not only the one that it replaces: a run leased to a rank that is about to be killed would leave
        the others waiting for it.
        """
        trainer, index = registration.trainer, registration.index
        for name, rank in self.members.of_trainer(trainer).items():
            # A rank may register twice if the reply got lost; drop the first registration.
            is_former = rank.registration.group != registration.group or rank.registration.index == index
            if is_former and name in self.members.ranks:
                self.lose(name, successor=registration)
        name = f"{trainer}/{index}#{self.unique()}"
        self.members.add(name, registration)
        return name

    async def next_lease(self, name: str) -> Lease | Leave | None:
        """Wait for work; None if there is no more."""
        rank = self.members.ranks.get(name)
        if self._closed or name.partition("/")[0] in self.members.ended:
            return None
        if rank is None:
            return Leave()  # it was removed as lost
        if rank.attempt is not None and rank.attempt.is_waiting_for(name) and name not in rank.attempt.begun:
            return rank.lease  # the first reply was lost in the network

        reply = rank.waiting = asyncio.get_running_loop().create_future()
        if not rank.must_leave and rank.attempt is None:
            self.members.set_idle(name)
        self.dispatch()
        try:
            return await reply
        except asyncio.CancelledError:
            # Ray cancels the calls of a process that has ended.
            if rank.waiting is reply:
                rank.waiting, rank.free_since = None, now()
                self.members.set_busy(name, rank)
            raise

    async def interruption(self, name: str) -> tuple[str, ...] | Observe | None:
        """Wait until the rank is to stop waiting for lost ranks of its run; returns the addresses of their machines.

        `Observe` if its run makes no progress: the rank calls `waits`, and asks again.
        None if the rank was removed as lost.
        """
        rank = self.members.ranks.get(name)
        if rank is None:
            return None
        if self._closed:
            return ()
        rank.interruption = asyncio.get_running_loop().create_future()
        return await rank.interruption

    async def begun(self, name: str, lease_id: str, oom_kills: int | None) -> None:
        """Note that a rank has started its part of a run."""
        attempt = self.attempt_of(name, lease_id)
        if attempt is not None:
            attempt.begun[name] = oom_kills
            attempt.progressed = now()

    async def waits(self, name: str, lease_id: str, wait: CollectiveWait | None) -> None:
        """Note the collective in which a rank waits, None for no collective, after `Observe`."""
        attempt = self.attempt_of(name, lease_id)
        if attempt is not None:
            attempt.waits[name] = wait

    async def progress(self, name: str, lease_id: str) -> None:
        """Note that a rank is getting on with its run."""
        attempt = self.attempt_of(name, lease_id)
        if attempt is not None:
            attempt.progressed = now()

    async def emit(self, name: str, lease_id: str, event: EpochEnded, number: int) -> None:
        """Take an epoch that a rank has ended in a run that is not prunable; `number`: which of its epochs, from 1."""
        attempt = self.attempt_of(name, lease_id)
        if attempt is not None:
            self._take_epoch(attempt, name, event, number)

    async def epoch(self, name: str, lease_id: str, event: EpochEnded, number: int) -> bool:
        """Wait for the decision whether a prunable run continues after an epoch that a rank has ended.

        Args:
            name: the rank.
            lease_id: its part in the run.
            event: the epoch.
            number: which of the epochs of this rank, from 1.

        Returns:
            Whether to continue. False for a run that has ended without this rank.
        """
        attempt = self.attempt_of(name, lease_id)
        if attempt is None:
            return False
        self._take_epoch(attempt, name, event, number)
        return await attempt.may_continue(name, number)

    def _take_epoch(self, attempt: Attempt, name: str, event: EpochEnded, number: int) -> None:
        """Pass an epoch on, and those that waited for it: only those of the first rank, each once, in their order."""
        attempt.progressed = now()
        if name == attempt.ranks[0]:
            for ready in attempt.in_order(event, number):
                self.streams.add(attempt.job.run_id, ready)

    async def finish(self, name: str, lease_id: str, result: RankResult, epochs: Sequence[EpochEnded] = ()) -> bool:
        """Take the result of a rank, of which the first counts; returns whether its process may stay.

        A rank that failed while others wait for it in a collective must end its process: neither gloo nor NCCL
        reports it in any other way. If all ranks fail, no rank waits, and all may stay.

        Args:
            name: the rank.
            lease_id: its part in the run.
            result: its result.
            epochs: all of its epochs. Some may be on their way: the calls of a rank may arrive in any order.
        """
        too_large = self.limits.recycle_above_mib is not None and result.rss_mib > self.limits.recycle_above_mib
        if too_large and name in self.members.ranks:
            self.replace_ranks(self.members.ranks[name].registration.trainer)
        attempt = self.attempt_of(name, lease_id)
        if attempt is None:
            return True  # the run was settled without it
        if attempt.interrupted and result.outcome != Outcome.OK:
            # The collective it waited in was aborted, which may surface as any error.
            result = dataclasses.replace(result, is_symptom=True)
        for number, event in enumerate(epochs, 1):
            self._take_epoch(attempt, name, event, number)
        has_died = result.outcome is Outcome.KILLED and not result.is_symptom
        if has_died:
            attempt.lose(name, result.reason)  # the child process of the run, not the rank
        else:
            attempt.take(name, result)
        if has_died or result.is_symptom:
            attempt.lost_addresses.add(self.members.ranks[name].registration.store[0])
        self.settle(attempt)

        if has_died or result.is_symptom or result.outcome is Outcome.OK:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(attempt.settled.wait(), PEERS_FAIL_WITHIN_S)
        if attempt.settled.is_set():
            return True
        if name in self.members.ranks:
            self.lose(name)
        return False

    async def submit(self, job: Job, *, owner: str = "") -> bool:
        """Queue a run.

        Args:
            job: the run.
            owner: who follows the run; a run that another owner has submitted is not run twice.

        Returns:
            Whether the caller is to follow its events.
        """
        if not self.streams.open(job.run_id, owner):
            return False
        if self.aborted is not None:
            self.streams.add(job.run_id, self.aborted)
        elif reason := self.failures.give_up_reason(job.trial_id):
            self.streams.add(job.run_id, skipped(reason, SkipKind.GIVEN_UP))
        else:
            self.queue.append(Queued(job))
            self.dispatch()
        return True

    async def given_up(self, trial_id: str) -> str:
        """Why further runs of a trial are skipped; empty if they are not."""
        return self.failures.give_up_reason(trial_id)

    async def has_ended(self, trial_id: str, verdict: Verdict) -> None:
        """Count the end of a run of the trial under a launcher that this broker does not serve."""
        self.failures.note(trial_id, verdict)

    async def events(self, run_id: str) -> list[RunEvent]:
        """Events of a run since the last call, as soon as there are some; none if there were none for some seconds."""
        return await self.streams.read(run_id)

    async def decide(self, run_id: str, attempt: int, epochs: int | None) -> None:
        """Let an attempt at a run continue after this many epochs; None: stop the run, in whichever attempt."""
        for current in self.attempts.values():
            if current.job.run_id == run_id and (epochs is None or current.number == attempt):
                current.decide(epochs=epochs)
        if epochs is not None:
            return
        if queued := self.queue.pop_retry(run_id):
            # Its attempt died, and no other is wanted.
            *earlier, last = queued.earlier
            verdict = Verdict(outcome=Outcome(last.outcome), reason=last.reason)
            finished = RunFinished(verdict=verdict, attempts=len(queued.earlier), earlier=tuple(earlier))
            self.streams.add(run_id, finished)

    async def forget(self, run_id: str) -> None:
        """Drop the events of a run: the driver has them all."""
        self.streams.forget(run_id)

    async def cancel(self, run_id: str) -> None:
        """Remove a queued run; a run under way ends by itself, and its result is dropped."""
        self.queue.cancel(run_id)

    async def close(self) -> None:
        """Accept no more runs: idle ranks leave at once, the others when they ask for work."""
        self._closed = True
        for rank in self.members.ranks.values():
            rank.answer(None)
            rank.interrupt(())

    async def wait_for_death(self) -> None:
        """Never return: a caller that waits learns of the death of this process."""
        await asyncio.Event().wait()
