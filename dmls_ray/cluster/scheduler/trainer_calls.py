"""`TrainerCalls`: the calls of trainers, and of the driver about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_ray.cluster.messages import ExpectedTrainer, RankDeath
from dmls_ray.cluster.scheduler.attempt import oom_kill_evidence
from dmls_ray.cluster.scheduler.dispatcher import Dispatcher


class TrainerCalls(Dispatcher):
    """The part of the broker that knows which trainers there are, and how they fail."""

    async def expect(self, trainer: str, expected: ExpectedTrainer) -> None:
        """Announce a trainer.

        Ignored if the trainer's machine has left meanwhile: another thread may have reported that before.
        """
        self.members.expect(trainer, expected)
        self.dispatch()

    async def trainer_failed(self, trainer: str, reason: str, *, is_lost: bool = False) -> None:
        """Give up a trainer: another start of it would fail in the same way.

        Args:
            trainer: its name.
            reason: what happened.
            is_lost: whether its controller died, so that another start of the sweep is likely to succeed.
        """
        self.give_up(trainer, reason, is_lost=is_lost)

    async def end_trainer(self, trainer: str, *, left: str = "") -> None:
        """Remove the ranks of a trainer, and accept no new ones from it.

        Args:
            trainer: its name.
            left: its machine, if that has left the cluster: then no run is charged for it.
        """
        if left:
            self.members.departed[left] = None
        self.end_ranks_of(trainer, departed=left)

    async def refusal(self, trainer: str) -> str:
        """Why the ranks of a trainer cannot serve; empty if nothing is known of it."""
        return self.members.refusals.get(trainer, "")

    async def controlled_by(self, trainer: str, controller: Any) -> None:
        """Remember the actor that controls a trainer."""
        self.controllers[trainer] = controller
        if trainer in self.members.refusals:
            self.stop_controller(controller)

    async def known_controllers(self) -> dict[str, Any]:
        """The actors that control trainers, by trainer, including ended trainers."""
        return self.controllers

    async def ranks_failed(self, trainer: str, deaths: Mapping[int, RankDeath]) -> None:
        """Take Ray's report that processes of ranks died.

        Args:
            trainer: the trainer of the ranks.
            deaths: by number of the rank in that trainer.
        """
        ranks = [rank.registration for rank in self.members.of_trainer(trainer).values()]
        # Before anything is awaited: the trainer's next group may join meanwhile.
        self.members.broken_groups |= {(trainer, rank.group) for rank in ranks if rank.index in deaths}
        state = self.members.trainers.get(trainer)
        if state is not None:
            early = deaths.keys() - state.lost
            state.lost -= deaths.keys()
            is_starting = state.missing_since is not None
            if is_starting and early and not any(death.left for death in deaths.values()):
                self.start_failed(trainer, _died_early(len(early), state.where, deaths))
        for index, death in deaths.items():
            await self._rank_failed(trainer, index, death)

    async def _rank_failed(self, trainer: str, index: int, death: RankDeath) -> None:
        for name, rank in self.members.of_trainer(trainer).items():
            registration = rank.registration
            if registration.index != index:
                continue
            attempt = rank.attempt
            if attempt is not None and not death.left:
                memory, before = death.memory, attempt.begun.get(name)
                if not memory and before is not None:
                    after = await self.oom_kills_on(registration)
                    memory = oom_kill_evidence(before, after, registration.machine)
                attempt.oom_kill = attempt.oom_kill or memory
            if name in self.members.ranks:
                self.lose(name, departed=registration.machine if death.left else "")
            if (state := self.members.trainers.get(trainer)) is not None:
                state.lost.discard(index)


def _died_early(count: int, where: str, deaths: Mapping[int, RankDeath]) -> str:
    memory = next((death.memory for death in deaths.values() if death.memory), "")
    cause = memory or "is there too little memory, or does a library crash there? Ray's logs say more"
    return f"{count} rank{'s' if count > 1 else ''}{where} died before they could serve ({cause})"
