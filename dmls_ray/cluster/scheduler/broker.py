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
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from dmls_ray.cluster.messages import ExpectedTrainer, Job, Lease, Leave, RankDeath, RankRegistration
from dmls_ray.cluster.scheduler.attempt import Attempt, now, oom_kill_evidence
from dmls_ray.cluster.scheduler.dispatcher import Dispatcher, skipped
from dmls_ray.cluster.scheduler.membership import Membership, Rank
from dmls_ray.config.options import RunLimits
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RankResult, RunEvent, RunFinished, SkipKind, Verdict

PEERS_FAIL_WITHIN_S = 2.0
"""Time for the other ranks of a run to end by themselves after one has failed."""


async def _no_process(registration: RankRegistration) -> bool:
    return True


async def _unknown(registration: RankRegistration) -> None:
    return None


class Broker:
    """The calls that ranks, trainers, Trainables and the driver make to the scheduler.

    Args:
        expected: the trainers all of whose ranks must have joined before any run starts. Otherwise a run would be timed
            while another rank of its machines still starts.
        exclusive: lease the ranks of a lane to one run at a time (bench mode), not to as many as there are ranks for.
        limits: timeouts, retries and the memory of ranks.
        end_process: kills the process of a rank, whatever it does; returns whether it is gone.
        oom_kills_on: the kernel's count of processes killed for lack of memory on a rank's machine; None if unknown.
    """

    def __init__(
        self,
        expected: Mapping[str, ExpectedTrainer],
        *,
        exclusive: bool = True,
        limits: RunLimits | None = None,
        end_process: Callable[[RankRegistration], Awaitable[bool]] = _no_process,
        oom_kills_on: Callable[[RankRegistration], Awaitable[int | None]] = _unknown,
    ) -> None:
        self.members = Membership(expected)
        self.dispatcher = Dispatcher(
            self.members, exclusive=exclusive, limits=limits or RunLimits(), end_process=end_process
        )
        self._oom_kills_on = oom_kills_on
        self._controllers: dict[str, Any] = {}
        """The actors that control trainers, by trainer, including ended ones."""
        self._names = itertools.count()
        self._closed = False

    # --- ranks ----------------------------------------------------------------------------------------------

    async def join(self, registration: RankRegistration) -> str:
        """Add a rank; returns its name. The first rank of a new group means that all old ranks of its trainer are lost.

        All of them, not only the one that it replaces: a run leased to a rank that is about to be killed would leave
        the others waiting for it. Those that died by themselves are lost before: `ranks_failed` comes first.
        """
        trainer, index = registration.trainer, registration.index
        for name, rank in self.members.of_trainer(trainer).items():
            # A rank may register twice if the reply got lost; drop the first registration.
            is_former = rank.registration.group != registration.group or rank.registration.index == index
            if is_former and name in self.members.ranks:
                self.dispatcher.lose(name, replaced=True)
        name = f"{trainer}/{index}#{next(self._names)}"
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
        self.dispatcher.dispatch(self.members.lane_of(rank.registration.trainer))
        try:
            return await reply
        except asyncio.CancelledError:
            # Ray cancels the calls of a process that has ended.
            if rank.waiting is reply:
                rank.waiting, rank.free_since = None, now()
            raise

    async def begun(self, name: str, lease_id: str, oom_kills: int | None) -> None:
        """Note that a rank has started its part of a run."""
        attempt = self.dispatcher.attempt_of(name, lease_id)
        if attempt is not None:
            attempt.begun[name] = oom_kills
            attempt.progressed = now()

    async def progress(self, name: str, lease_id: str) -> None:
        """Note that a rank is getting on with its run."""
        attempt = self.dispatcher.attempt_of(name, lease_id)
        if attempt is not None:
            attempt.progressed = now()

    async def epoch(self, name: str, lease_id: str, event: EpochEnded, number: int) -> bool:
        """Take an epoch that a rank has ended, and wait in a prunable run for the decision whether it continues.

        Args:
            name: the rank.
            lease_id: its part in the run.
            event: the epoch.
            number: which of the epochs of this rank, from 1.

        Returns:
            Whether to continue. False for a run that has ended without this rank.
        """
        attempt = self.dispatcher.attempt_of(name, lease_id)
        if attempt is None:
            return False
        self._take_epoch(attempt, name, event, number)
        return await attempt.may_continue(number)

    def _take_epoch(self, attempt: Attempt, name: str, event: EpochEnded, number: int) -> None:
        """Pass an epoch of the first rank on, each once and in their order: `finish` brings what was overtaken."""
        attempt.progressed = now()
        if name == attempt.ranks[0] and number == attempt.reported + 1:
            attempt.reported = number
            self.dispatcher.streams.add(attempt.job.run_id, event)

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
        attempt = self.dispatcher.attempt_of(name, lease_id)
        if attempt is None:
            return True  # the run was settled without it
        for number, event in enumerate(epochs, 1):
            self._take_epoch(attempt, name, event, number)
        has_died = result.outcome is Outcome.KILLED and not result.is_symptom
        if has_died:
            attempt.lose(name, result.reason)  # the child process of the run, not the rank
        else:
            attempt.take(name, result)
        self.dispatcher.settle(attempt)

        if has_died or result.is_symptom or result.outcome is Outcome.OK:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(attempt.settled.wait(), PEERS_FAIL_WITHIN_S)
        if attempt.settled.is_set():
            return True
        if name in self.members.ranks:
            self.dispatcher.lose(name)
        return False

    # --- Trainables -----------------------------------------------------------------------------------------

    async def submit(self, job: Job, *, owner: str = "") -> bool:
        """Queue a run.

        Args:
            job: the run.
            owner: who follows the run; a run that another owner has submitted is not run twice.

        Returns:
            Whether the caller is to follow its events.
        """
        if not self.dispatcher.streams.open(job.run_id, owner):
            return False
        if self.dispatcher.aborted is not None:
            self.dispatcher.streams.add(job.run_id, self.dispatcher.aborted)
        elif reason := self.dispatcher.failures.give_up_reason(job.trial_id):
            self.dispatcher.streams.add(job.run_id, skipped(reason, SkipKind.GIVEN_UP))
        else:
            self.dispatcher.submit(job)
        return True

    async def end_block(self, block: int) -> None:
        """Free the lane of a block: all of its runs have ended."""
        self.dispatcher.end_block(block)

    async def given_up(self, trial_id: str) -> str:
        """Why further runs of a trial are skipped; empty if they are not."""
        return self.dispatcher.failures.give_up_reason(trial_id)

    async def has_ended(self, trial_id: str, verdict: Verdict) -> None:
        """Count the end of a run of the trial under a launcher that this broker does not serve."""
        self.dispatcher.failures.note(trial_id, verdict)

    async def events(self, run_id: str) -> list[RunEvent]:
        """Events of a run since the last call, as soon as there are some.

        If there were none for some seconds: how long ago the run made progress; none where it waits for ranks.
        """
        return await self.dispatcher.streams.read(run_id) or self.dispatcher.progress_of(run_id)

    async def decide(self, run_id: str, attempt: int, epochs: int | None) -> None:
        """Let an attempt at a run continue after this many epochs; None: stop the run, in whichever attempt."""
        for current in self.dispatcher.attempts.values():
            if current.job.run_id == run_id and (epochs is None or current.number == attempt):
                current.decide(epochs=epochs)
        if epochs is not None:
            return
        queued = self.dispatcher.queues.remove_retry(run_id)
        if queued is not None:
            # Its attempt died, and no other is wanted.
            *earlier, last = queued.earlier
            verdict = Verdict(outcome=Outcome(last.outcome), reason=last.reason)
            finished = RunFinished(verdict=verdict, attempts=len(queued.earlier), earlier=tuple(earlier))
            self.dispatcher.streams.add(run_id, finished)

    async def forget(self, run_id: str) -> None:
        """Drop the events of a run: the driver has them all."""
        self.dispatcher.streams.forget(run_id)

    # --- trainers -------------------------------------------------------------------------------------------

    async def expect(self, trainer: str, expected: ExpectedTrainer) -> None:
        """Announce a trainer.

        Ignored if the trainer's machine has left meanwhile: another thread may have reported that before.
        """
        self.members.expect(trainer, expected)
        self.dispatcher.dispatch()

    async def trainer_failed(self, trainer: str, reason: str, *, is_lost: bool = False) -> None:
        """Give up a trainer: another start of it would fail in the same way.

        Args:
            trainer: its name.
            reason: what happened.
            is_lost: whether its controller died, so that another start of the sweep is likely to succeed.
        """
        self.dispatcher.give_up(trainer, reason, is_lost=is_lost)

    async def end_trainer(self, trainer: str, left: str) -> None:
        """Remove the ranks of a trainer; no run is charged for it.

        Args:
            trainer: the trainer.
            left: its machine, if that has left the cluster.
        """
        if left:
            self.members.departed[left] = None
        self.dispatcher.end_ranks_of(trainer, departed=left)

    async def refusals(self) -> dict[str, str]:
        """The trainers of machines that joined whose ranks cannot serve, and why."""
        return self.members.refusals

    async def controlled_by(self, trainer: str, controller: Any) -> None:
        """Remember the actor that controls a trainer."""
        self._controllers[trainer] = controller

    async def known_controllers(self) -> dict[str, Any]:
        """The actors that control trainers, by trainer, including ended trainers."""
        return self._controllers

    async def ranks_failed(self, trainer: str, deaths: Mapping[int, RankDeath]) -> None:
        """Take Ray's report that processes of ranks died.

        Args:
            trainer: the trainer of the ranks.
            deaths: by number of the rank in that trainer.
        """
        state = self.members.trainers.get(trainer)
        if state is not None:
            early = deaths.keys() - state.lost
            state.lost -= deaths.keys()
            has_left = any(death.left for death in deaths.values())
            # Train starts others by itself.
            if early and state.missing_since is not None and not has_left and state.failed():
                memory = next((death.memory for death in deaths.values() if death.memory), "")
                cause = memory or "is there too little memory, or does a library crash there? Ray's logs say more"
                ranks = f"{len(early)} rank{'s' if len(early) > 1 else ''}{state.where}"
                reason = f"{ranks} died before they could serve ({cause}), {state.failed_starts} times in a row"
                self.dispatcher.give_up(trainer, reason)
        for name, rank in self.members.of_trainer(trainer).items():
            death = deaths.get(rank.registration.index)
            if death is not None:
                await self._rank_failed(name, rank, death)
        if state is not None:
            state.lost -= deaths.keys()

    async def _rank_failed(self, name: str, rank: Rank, death: RankDeath) -> None:
        attempt, registration = rank.attempt, rank.registration
        if attempt is not None and not death.left:
            memory, before = death.memory, attempt.begun.get(name)
            if not memory and before is not None:
                after = await self._oom_kills_on(registration)
                memory = oom_kill_evidence(before, after, registration.machine)
            attempt.oom_kill = attempt.oom_kill or memory
        if name in self.members.ranks:
            self.dispatcher.lose(name, departed=registration.machine if death.left else "")

    # --- the driver -----------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Accept no more runs: idle ranks leave at once, the others when they ask for work."""
        self._closed = True
        for rank in self.members.ranks.values():
            rank.answer(None)

    async def wait_for_death(self) -> None:
        """Never return: a caller that waits learns of the death of this process."""
        await asyncio.Event().wait()
