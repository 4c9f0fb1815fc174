"""`Evaluation`: a time that was left out as a test of the model, and whether it may be a part of the training."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from dmls_ray.training.clocks import LeftOut
from dmls_ray.training.observed.seen_steps import SeenStep

Meaning = Literal["auto", "test", "training"]
"""What times are that look like tests, by the user's word; auto: as they look."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A time that was left out as a test of the model."""

    time: LeftOut
    data: frozenset[int]
    """The data sets that loaders read in it."""
    tensors: frozenset[int]
    """What models were given in it, as `Met` identifies it."""


class Met:
    """Identifies tensors that models are given: one that comes again as it was has the same number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], tuple[weakref.ref[Tensor], int]] = {}
        self._next = 0

    def number_of(self, tensor: Tensor) -> int:
        """The number of a tensor; of a view, that of the tensor of which it shows a part."""
        whole = tensor if tensor._base is None else tensor._base
        key = id(whole), 0 if whole.is_inference() else whole._version
        known = self._numbers.get(key)
        if known is None or known[0]() is not whole:
            self._next += 1
            known = self._numbers[key] = weakref.ref(whole), self._next
        return known[1]


def doubtful_ms(evaluations: Sequence[Evaluation], steps: Sequence[SeenStep]) -> float:
    """Milliseconds that were left out as tests, and may be a part of the training.

    A model generates samples, plays, or labels data in evaluation mode, too. It is tested beyond doubt where
    other data are read than in training, or where it is given nothing but tensors that it is given in another test.
    """
    trained = {batch.data for step in steps for batch in step.batches}
    tests = Counter(tensor for item in evaluations for tensor in item.tensors)
    return sum(item.time.ms for item in evaluations if not _is_test(item, trained, tests))


def _is_test(item: Evaluation, trained: set[int], tests: Counter[Any]) -> bool:
    if item.data:
        return not item.data <= trained
    return bool(item.tensors) and all(tests[tensor] > 1 for tensor in item.tensors)
