"""`ModelTests`: the times in which training code tests its model, which are no part of its steps."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from dmls_ray.training.clocks import LeftOut, StepTimer
from dmls_ray.training.observed.evaluations import Evaluation, Meaning
from dmls_ray.training.observed.loaders import Batch
from dmls_ray.training.observed.model_inputs import ModelInputs
from dmls_ray.training.observed.step_under_way import StepUnderWay

_IS_TRAINED_ON = "_dmls_ray_is_trained_on"
"""Attribute of an iterator whose batches were read before a backward pass."""
_PASS = 2
"""Batches from which on what was read without a backward pass is a pass over a loader, if it did not end before."""


class Modes:
    """The modes of the models that train, each seen at a module within the model."""

    def __init__(self) -> None:
        self._modules: list[weakref.ref[nn.Module]] = []

    def watch(self, modules: Sequence[nn.Module]) -> None:
        """Look at these modules, too."""
        self._modules += [weakref.ref(module) for module in modules]

    def is_evaluation(self) -> bool:
        """Whether a model is in evaluation mode."""
        for reference in self._modules:
            module = reference()
            if module is not None and not module.training:
                return True
        return False

    def ignore_evaluation(self) -> list[nn.Module]:
        """Look no more at the models in evaluation mode; returns what is left out by it."""
        present = [module for reference in self._modules if (module := reference()) is not None]
        self._modules.clear()
        self.watch([module for module in present if module.training])
        return [module for module in present if not module.training]


class ReadIterators:
    """The iterators of loaders that were read, and which of them training reads."""

    def __init__(self) -> None:
        self._fresh: list[weakref.ref[Any]] = []
        """Those that were first read since the last backward pass, without those of tests."""
        self._next: list[weakref.ref[Any]] = []
        """The tensors of the batch that was read last and not trained on yet."""

    def is_last_fresh(self, iterator: Any) -> bool:
        """Whether this one was the last that was first read."""
        return bool(self._fresh) and self._fresh[-1]() is iterator

    def read_began(self, iterator: Any) -> bool:
        """A batch is asked for; returns whether training has not read this iterator."""
        if hasattr(iterator, _IS_TRAINED_ON):
            return False
        self._fresh.append(weakref.ref(iterator))
        return True

    def batch_read(self, iterator: Any, leaves: Sequence[Any]) -> None:
        """A batch of these tensors was given."""
        if hasattr(iterator, _IS_TRAINED_ON):
            self._next = [weakref.ref(leaf) for leaf in leaves if isinstance(leaf, Tensor)]

    def has_next(self, leaves: Sequence[Any]) -> bool:
        """Whether one of these tensors is of the batch that is trained next."""
        return any(reference() is leaf for reference in self._next for leaf in leaves)

    def test_ended(self) -> None:
        """The last one was read for a test."""
        if self._fresh:
            self._fresh.pop()

    def trained(self) -> None:
        """All that were read are trained on."""
        for reference in self._fresh:
            iterator = reference()
            if iterator is not None:
                setattr(iterator, _IS_TRAINED_ON, True)
        self._fresh.clear()


@dataclass(slots=True)
class _Candidate:
    """A time that may be a test."""

    began: Any
    phases: Any
    batches: list[Batch] = field(default_factory=list)
    is_evaluation: bool = False
    """Whether a model was in evaluation mode."""
    is_pass: bool = False
    """Whether so many batches were read that it was no look at one of them."""
    without_gradients: bool = False
    is_on_next: bool = False
    """Whether a model was given a batch that is trained next."""
    attacked: Sequence[weakref.ref[nn.Module]] = ()
    """Models in evaluation mode that had a backward pass: the inputs are attacked in a test, or it was training."""

    @property
    def data(self) -> frozenset[int]:
        """The data sets that were read in it, by their sizes."""
        return frozenset(batch.data[0] for batch in self.batches)


class ModelTests:
    """Finds tests of the model between two backward passes.

    A test is what cannot be training: a time in which the model is in evaluation mode, or in which a loader that
    training does not read then is read without gradients. It begins with the first sign of it, which is the first
    batch of a loader or the model's mode, and ends with what belongs to training again. All other time is training:
    reading, rollouts, passes without gradients.

    Args:
        timer: whose steps are without tests.
        step: gets the batches that were not read for a test.
        inputs: forgets what models were given in a test.
        meaning: what times are that look like tests.
    """

    def __init__(self, timer: StepTimer, step: StepUnderWay, inputs: ModelInputs, meaning: Meaning = "auto") -> None:
        self._timer = timer
        self._step = step
        self._inputs = inputs
        self.meaning = meaning
        self.found: list[Evaluation] = []
        self.modes = Modes()
        self._iterators = ReadIterators()
        self._candidate: _Candidate | None = None
        self._attack: _Candidate | None = None
        """Backward passes in evaluation mode, over a loader that was new, that no optimizer has applied."""

    # --- what happens -----------------------------------------------------------------------------------------------

    def read_began(self, iterator: Any, *, with_gradients: bool) -> None:
        """A batch is asked for.

        Args:
            iterator: the loader's iterator.
            with_gradients: whether gradients are recorded, as in training.
        """
        if not self._iterators.is_last_fresh(iterator):
            if self._candidate is not None:
                self._end(self._candidate, is_read_on=True)
            if self._iterators.read_began(iterator):
                self._open()
        self._look()
        if self._candidate is not None and not with_gradients:
            self._candidate.without_gradients = True

    def batch_read(self, iterator: Any, batch: Batch | None, leaves: Sequence[Any] = ()) -> None:
        """A batch was given; None at the end of the data.

        Args:
            iterator: the loader's iterator.
            batch: the batch.
            leaves: its tensors.
        """
        self._iterators.batch_read(iterator, leaves)
        candidate = self._candidate
        if candidate is None or not self._iterators.is_last_fresh(iterator):
            if batch is not None:
                self._step.batch_read(batch)
            return
        if batch is not None:
            candidate.batches.append(batch)
        candidate.is_pass = candidate.is_pass or len(candidate.batches) >= _PASS or batch is None

    def forward_began(self, *, with_gradients: bool, leaves: Sequence[Any] = ()) -> None:
        """A model that trains is given some tensors."""
        is_evaluation = self._look()
        candidate = self._candidate
        if candidate is None:
            return
        if is_evaluation:
            # A rollout, or the accuracy of the batch that is trained on, is no test.
            candidate.is_on_next = candidate.is_on_next or self._iterators.has_next(leaves)
        elif with_gradients:
            self._end(candidate, is_read_on=False)
        else:
            candidate.without_gradients = True

    def backward_began(self) -> bool:
        """A backward pass begins; returns whether it may be of a test that attacks the inputs."""
        candidate = self._candidate
        if candidate is not None and candidate.is_evaluation and self._look():
            # A model that trains in evaluation mode, with frozen statistics, says nothing by its mode.
            ignored = self.modes.ignore_evaluation()
            if candidate.batches and self._attack is None:
                candidate.attacked = [weakref.ref(module) for module in ignored]
                self._attack = candidate
            candidate.is_evaluation = False
        if self._candidate is not None:
            self._end(self._candidate, is_read_on=False)
        self._iterators.trained()
        return self._attack is not None

    def gradients_applied(self) -> None:
        """An optimizer makes a step."""
        self._attack = None  # what it applies was no test
        if self._candidate is not None:
            self._end(self._candidate, is_read_on=False)

    # --- what follows -----------------------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Look at the mode of the models; returns whether one is in evaluation."""
        if self._attack is not None and all(getattr(module(), "training", True) for module in self._attack.attacked):
            self._end_attack(self._attack)
        if self.modes.is_evaluation():
            self._open().is_evaluation = True
            return True
        if self._candidate is not None and self._candidate.is_evaluation:
            self._end(self._candidate, is_read_on=True)
        return False

    def _open(self) -> _Candidate:
        """The time that may be a test, which begins here if there is none."""
        if self._candidate is None:
            phases = self._timer.phases
            phases.after("rest")
            self._candidate = _Candidate(self._timer.mark(), phases.state())
        return self._candidate

    def _end(self, candidate: _Candidate, *, is_read_on: bool) -> None:
        """What may be a test is over.

        Args:
            candidate: the time.
            is_read_on: whether training reads or computes on. Else the batches that were read last are trained on.
        """
        self._candidate = None
        is_evaluation = candidate.is_evaluation and not candidate.is_on_next
        if is_evaluation or (is_read_on and candidate.is_pass and candidate.without_gradients):
            self._inputs.test_ended()
            if self.meaning != "training":
                time = self._leave_out(candidate)
                self.found.append(Evaluation(time, candidate.data))
            if candidate.batches:
                self._iterators.test_ended()
            return
        for batch in candidate.batches:
            self._step.batch_read(batch)

    def _leave_out(self, time: _Candidate) -> LeftOut:
        left_out = self._timer.leave_out(time.began, self._timer.mark())
        self._timer.phases.restore(time.phases)
        return left_out

    def _end_attack(self, attack: _Candidate) -> None:
        """The models train again, without a step of an optimizer since the backward passes in evaluation mode."""
        self._attack = None
        self.modes.watch([module for reference in attack.attacked if (module := reference()) is not None])
        self._step.attack_ended()
        if self.meaning == "test":
            self._leave_out(attack)
        elif self._timer.is_warm:
            time = LeftOut(0, attack.began, self._timer.mark())
            self.found.append(Evaluation(time, attack.data, is_counted=True))
