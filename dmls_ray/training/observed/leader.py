"""`StepRule`: which steps of which optimizer are the steps of a training."""

from __future__ import annotations

import weakref
from collections import Counter

from torch.optim import Optimizer

_MOST_OF_ANOTHER = 10
"""Steps of another optimizer, without one of the leader, after which it leads: in adversarial training
they are fewer."""


class StepRule:
    """Decides what ends a step of the training: a step of an optimizer, or a backward pass where there is no optimizer.

    The first optimizer that makes a step leads: its steps are those of the training, and steps of others are parts of
    them. So a generator and a discriminator make one step together, and so do optimizers that have a parameter each.
    Another optimizer leads once the leader is gone, or has made no step while the other made ten: a second stage of
    the training has begun. If the former leader makes steps again, that was no stage.
    """

    def __init__(self) -> None:
        self._leader: weakref.ref[Optimizer] | None = None
        self._leaders: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        """All that have led."""
        self._others: Counter[int] = Counter()
        """Steps of each other optimizer since the last step of the leader, by its id."""
        self.optimizers = 0
        """Optimizers that made steps in the last step of the training."""
        self.took_over = False
        """Whether the last step of the training is of the ten of an optimizer that leads since."""
        self.takes_turns = False
        """Whether an optimizer makes steps that has led, after another one has taken the lead."""
        self.has_optimizer = False
        """Whether there is one: code without any changes its parameters itself."""

    def optimizer_made(self) -> None:
        """The program has an optimizer, which makes the steps."""
        self.has_optimizer = True

    def optimizer_stepped(self, optimizer: Optimizer) -> bool:
        """An optimizer has made a step; returns whether the step of the training under way ends with it."""
        leader = None if self._leader is None else self._leader()
        self.took_over = False
        if leader is optimizer and not self._others:
            self.optimizers = 1
            return True
        if leader is not optimizer and optimizer in self._leaders:
            self.takes_turns = True
        if leader is not None and leader is not optimizer:
            self._others[id(optimizer)] += 1
            if self._others[id(optimizer)] < _MOST_OF_ANOTHER:
                return False
        if leader is not optimizer:
            self._leader = weakref.ref(optimizer)
            self.took_over = leader is not None
            self._leaders.add(optimizer)
            self._others.pop(id(optimizer), None)
        self.optimizers = 1 + len(self._others)
        self._others.clear()
        return True
