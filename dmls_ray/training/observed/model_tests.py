"""`ModelTests`: the times in which training code tests its model, which are no part of its steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dmls_ray.training.clocks import LeftOut, StepTimer
from dmls_ray.training.observed.evaluations import Evaluation, Meaning
from dmls_ray.training.observed.loaders import Batch

_IS_TRAINED_ON = "_dmls_ray_is_trained_on"
"""Attribute of an iterator whose batches were read before a backward pass."""
_PASS = 2
"""Batches from which on what was read without a backward pass is a pass over a loader, if it did not end before."""


@dataclass(frozen=True)
class _Attack:
    """What began in evaluation mode and has backward passes: a test that attacks the inputs, or training."""

    began: Any
    phases: Any
    data: frozenset[int]
    """The data sets that were read for it, by their sizes."""
    modules: Sequence[weakref.ref[nn.Module]]
    """Those in evaluation mode."""


class ModelTests:
    """Finds tests of the model between two backward passes.

    A test is what cannot be training: a time in which the model is in evaluation mode, or in which a loader that
    training does not read then is read without gradients. It begins with the first sign of it, which is the first
    batch of a loader or the model's mode, and ends with what belongs to training again. All other time is training:
    reading, rollouts, passes without gradients.

    Args:
        timer: whose steps are without tests.
        keep: takes the batches that were not read for a test.
        drop: called after a test, in which models may have been given something as in training.
        note: takes each test.
        drop_attack: called after one with backward passes that no optimizer has applied.
        meaning: what times are that look like tests.
    """

    def __init__(
        self,
        timer: StepTimer,
        keep: Callable[[Batch], object],
        drop: Callable[[], object],
        note: Callable[[Evaluation], object],
        drop_attack: Callable[[], object],
        meaning: Meaning = "auto",
    ) -> None:
        self._timer, self._keep, self._drop = timer, keep, drop
        self._note, self._drop_attack, self._meaning = note, drop_attack, meaning
        self._attack: _Attack | None = None
        """Backward passes in evaluation mode, over a loader that was new, that no optimizer has applied."""
        self._modules: list[weakref.ref[nn.Module]] = []
        """One within each model, whose mode is that of the model."""
        self._began: Any = None
        """Where what may be a test began; None outside."""
        self._phases: Any = None
        self._fresh: list[weakref.ref[Any]] = []
        """Iterators of loaders that were first read since the last backward pass, without those of tests."""
        self._batches: list[Batch] = []
        self._is_evaluation = self._is_pass = self._without_gradients = False
        self._next: list[weakref.ref[Any]] = []
        """The tensors of the batch that was read last and not trained on yet."""
        self._is_on_next = False
        """Whether a model was given one of them."""

    def watch(self, modules: list[nn.Module]) -> None:
        """Take the mode of these modules, too, within models that train, for that of their models."""
        self._modules += map(weakref.ref, modules)

    # --- what happens -----------------------------------------------------------------------------------------------

    def begin_read(self, iterator: Any, *, with_gradients: bool) -> None:
        """A batch is asked for.

        Args:
            iterator: the loader's iterator.
            with_gradients: whether gradients are recorded, as in training.
        """
        if not (self._fresh and self._fresh[-1]() is iterator):
            if self._began is not None:
                self._end(is_read_on=True)
            if not hasattr(iterator, _IS_TRAINED_ON):
                self._fresh.append(weakref.ref(iterator))
                self._open()
        self.look()
        if self._began is not None and not with_gradients:
            self._without_gradients = True

    def read(self, iterator: Any, batch: Batch | None, leaves: Sequence[Any] = ()) -> None:
        """A batch was given; None at the end of the data.

        Args:
            iterator: the loader's iterator.
            batch: the batch.
            leaves: its tensors.
        """
        if hasattr(iterator, _IS_TRAINED_ON):
            self._next = [weakref.ref(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
        if self._began is None or not self._fresh or self._fresh[-1]() is not iterator:
            if batch is not None:
                self._keep(batch)
            return
        if batch is not None:
            self._batches.append(batch)
        self._is_pass = self._is_pass or len(self._batches) >= _PASS or batch is None

    def compute(self, *, with_gradients: bool, leaves: Sequence[Any] = ()) -> None:
        """A model that trains is given some tensors."""
        if self.look():
            # A rollout, or the accuracy of the batch that is trained on, is no test.
            self._is_on_next = self._is_on_next or any(ref() is leaf for ref in self._next for leaf in leaves)
            return
        if self._began is None:
            return
        if with_gradients:
            self._end(is_read_on=False)
        else:
            self._without_gradients = True

    def look(self) -> bool:
        """Look at the mode of the models; returns whether one is in evaluation."""
        if self._attack is not None and all(getattr(module(), "training", True) for module in self._attack.modules):
            self._end_attack(self._attack)
        for reference in self._modules:
            module = reference()
            if module is not None and not module.training:
                self._open()
                self._is_evaluation = True
                return True
        if self._is_evaluation:
            self._end(is_read_on=True)
        return False

    def train(self) -> None:
        """A backward pass begins."""
        if self._is_evaluation and self.look():
            # A model that trains in evaluation mode, with frozen statistics, says nothing by its mode.
            in_evaluation = [module for module in self._modules if not getattr(module(), "training", False)]
            self._modules = [module for module in self._modules if module not in in_evaluation]
            if self._batches and self._attack is None:
                data = frozenset(batch.data[0] for batch in self._batches)
                self._attack = _Attack(self._began, self._phases, data, in_evaluation)
        self._is_evaluation = False
        if self._began is not None:
            self._end(is_read_on=False)
        for reference in self._fresh:
            iterator = reference()
            if iterator is not None:
                setattr(iterator, _IS_TRAINED_ON, True)
        self._fresh.clear()

    @property
    def is_attack(self) -> bool:
        """Whether backward passes under way may be of a test."""
        return self._attack is not None

    def end_step(self) -> None:
        """An optimizer makes a step."""
        self._attack = None  # what it applies was no test
        if self._began is not None:
            self._end(is_read_on=False)

    # --- what follows -----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._began is None:
            self._timer.phases.after("rest")
            self._began, self._phases = self._timer.mark(), self._timer.phases.state()

    def _end(self, *, is_read_on: bool) -> None:
        """What may be a test is over.

        Args:
            is_read_on: whether training reads or computes on. Else the batches that were read last are trained on.
        """
        is_evaluation = self._is_evaluation and not self._is_on_next
        is_test = is_evaluation or (is_read_on and self._is_pass and self._without_gradients)
        if is_test:
            self._drop()
            if self._meaning != "training":
                self._leave_out()
            if self._fresh and self._batches:
                self._fresh.pop()
        else:
            for batch in self._batches:
                self._keep(batch)
        self._began, self._batches, self._is_on_next = None, [], False
        self._is_evaluation = self._is_pass = self._without_gradients = False

    def _leave_out(self) -> None:
        time = self._timer.leave_out(self._began, self._timer.mark())
        self._timer.phases.restore(self._phases)
        self._note(Evaluation(time, frozenset(batch.data[0] for batch in self._batches)))

    def _end_attack(self, attack: _Attack) -> None:
        """The models train again, without a step of an optimizer since the backward passes in evaluation mode."""
        self._attack = None
        self._modules += attack.modules
        self._drop_attack()
        if self._meaning == "test":
            self._timer.leave_out(attack.began, self._timer.mark())
            self._timer.phases.restore(attack.phases)
        elif self._timer.is_warm:
            self._note(Evaluation(LeftOut(0, attack.began, self._timer.mark()), attack.data, is_counted=True))
