"""`StepUnderWay`: what the step under way had so far, and which of it no optimizer has applied."""

from __future__ import annotations

from collections.abc import Sequence

from torch.optim import Optimizer

from dmls_ray.training.observed.given import Given
from dmls_ray.training.observed.gradients import Gradients
from dmls_ray.training.observed.loaders import Batch
from dmls_ray.training.observed.seen_steps import SeenStep


class StepUnderWay:
    """Collects the batches and the backward passes of a step, without those whose gradients are thrown away."""

    def __init__(self) -> None:
        self.seen = SeenStep()
        self._gradients = Gradients()
        self._unapplied = 0
        """Backward passes since the last step of any optimizer."""
        self._before_attack: int | None = None
        """How many backward passes of the step are of no attack, where one is under way."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """The program has made an optimizer."""
        self._gradients.optimizer_made(optimizer)

    def batch_read(self, batch: Batch) -> None:
        """A loader gave a batch, and not for a test."""
        self.seen.batches.append(batch)

    def attack_began(self) -> None:
        """The backward pass that begins may be of a test, and so may those that follow."""
        if self._before_attack is None:
            self._before_attack = len(self.seen.passes)

    def backward_began(self, given: Given | None, unused: Sequence[Given]) -> None:
        """A backward pass has begun.

        Args:
            given: what models were given for it; None where no model was seen.
            unused: what they were given that no backward pass is of.
        """
        step = self.seen
        if unused:
            step.unused = [*step.unused, *unused]
        is_new = self._before_attack is None and (given is None or not given.is_again)
        if self._unapplied and is_new and self._gradients.are_gone():
            self._drop(len(step.passes) - self._unapplied)
            self._unapplied = 0
        step.passes.append(given)

    def backward_ended(self) -> None:
        """A backward pass has ended."""
        self._unapplied += 1
        self._gradients.backward_ended()

    def gradients_applied(self, *, by_another: bool) -> None:
        """An optimizer has applied the backward passes so far, so that none was of a test.

        Args:
            by_another: whether its step is a part of the step under way, as that of a discriminator.
        """
        first = len(self.seen.passes) - self._unapplied
        self._unapplied = 0
        self._before_attack = None
        if by_another:
            for given in self.seen.passes[first:]:
                if given is not None:
                    given.is_of_another = True

    def attack_ended(self) -> None:
        """No optimizer applies the backward passes since the attack began."""
        first = self._before_attack
        if first is None:
            return
        self._before_attack = None
        self.seen.of_test += len(self.seen.passes) - first
        self._drop(first)
        self._unapplied = min(self._unapplied, first)

    def step_ended(self) -> SeenStep:
        """The step under way has ended, and the next one begins; returns the one that ended."""
        ended = self.seen
        self.seen = SeenStep()
        return ended

    def _drop(self, first: int) -> None:
        """The backward passes from the `first` on were thrown away."""
        step = self.seen
        step.dropped = [*step.dropped, *step.passes[first:]]
        del step.passes[first:]
