"""The samples of steps that loaders gave batches for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, mode

from dmls_ray.training.observed.contents import Shape
from dmls_ray.training.observed.given import Given
from dmls_ray.training.observed.loaders import Batch
from dmls_ray.training.observed.seen_steps import MOST, SeenSamples, SeenStep, loaded_in, new_passes

_EQUAL = 0.01
"""Relative difference up to which two sums over steps are equal."""
_AHEAD = 2
"""Batches that a loader may have read ahead of the backward passes."""


def _are_equal(sum_: float, other: float) -> bool:
    return abs(sum_ - other) <= _EQUAL * other


class Read:
    """The samples of steps that loaders gave batches for.

    Args:
        steps: all steps.
        first: the first one to count.
    """

    def __init__(self, steps: Sequence[SeenStep], first: int) -> None:
        self._window = steps[first:]
        self._all = [batch for step in steps for batch in step.batches if batch.size]
        """The batches of all steps."""
        self._batches = [batch for step in self._window for batch in step.batches if batch.size]
        """Those of the steps to count."""
        self._sizes = {batch.size for batch in self._all}
        self._slack = _AHEAD * max(self._sizes)
        """Samples by which what was read may differ from what was trained, as a loader reads ahead."""
        self._by_shape: dict[Shape, int] = {}
        """Shape of a tensor of a batch -> the samples of the batch."""
        for batch in self._all:
            for shape in batch.shapes:
                if batch.size in shape[:2]:
                    self._by_shape[shape] = batch.size
        self._tails = {shape[1:] for shape, size in self._by_shape.items() if shape[0] == size}
        self._passes = new_passes(self._window)
        self._seen = [given for given in self._passes if given is not None]
        self._read = sum(batch.size for batch in self._batches)
        self._given = sum(sum(given.sizes) for given in self._seen)
        """Samples that the passes were given, of all forward passes."""
        self._before = len(new_passes(steps[:first]))
        self._ahead: list[int] = []
        """Batches that were read before their backward pass, or for none, after each step."""
        ahead = 0
        for step in steps:
            ahead += sum(batch.size > 0 for batch in step.batches) - len(new_passes([step]))
            self._ahead.append(ahead)
        self._of_pass: Sequence[Batch | None] = [None] * len(self._passes)
        """The batch of each pass; None where they are not known."""
        if self._has_batch_of_each_pass:
            # The next one, or the next one after those that were left out at first.
            shifts = [self._all[self._before + shift :][: len(self._passes)] for shift in (0, min(self._ahead))]
            self._of_pass = max(shifts, key=lambda some: sum(size > 0 for size in self._whole_sizes(some)))
        self._whole = self._whole_sizes(self._of_pass)
        self._part = [self._part_size(given, batch) for given, batch in zip(self._passes, self._of_pass, strict=False)]

    def samples(self) -> SeenSamples:
        """The samples of the steps to count."""
        if not self._passes:
            return SeenSamples(total=self._read, counted_by="loader")
        if len(self._seen) < len(self._passes):
            return self._without_model()
        is_known = self._has_batch_of_each_pass and all(
            whole or part is not None for whole, part in zip(self._whole, self._part, strict=True)
        )
        number_whole = sum(size > 0 for size in self._whole)
        if number_whole >= MOST * len(self._whole) or (is_known and number_whole):
            return self._of_batches()
        if sum(part is not None for part in self._part) >= MOST * len(self._part):
            return self._of_parts()
        return self._of_other_tensors()

    # --- what relates a pass to a batch ---------------------------------------------------------------------------

    @property
    def _has_batch_of_each_pass(self) -> bool:
        """Whether each pass was given the next batch: a loader may be ahead, and some batches left out at first."""
        counted = self._ahead[-len(self._window) - 1 :]
        return min(self._ahead) >= 0 and max(counted) - min(counted) <= _AHEAD

    def _whole_sizes(self, batches: Sequence[Batch | None]) -> list[int]:
        """As `_whole_size`, of each pass with one of these batches."""
        return [self._whole_size(given, batch) for given, batch in zip(self._passes, batches, strict=False)]

    def _whole_size(self, given: Given | None, batch: Batch | None) -> int:
        """The samples of the batch that a pass was given whole; 0 where it was not."""
        if given is None:
            return 0
        sizes = self._sizes if batch is None else {batch.size}
        of_shapes = [self._by_shape.get(shape, 0) for shape in given.first.shapes]
        heads = [shape[0] for shape in given.first.shapes if shape]
        return next((size for size in (*of_shapes, *heads, *given.first.lengths) if size in sizes), 0)

    def _part_size(self, given: Given | None, batch: Batch | None) -> int | None:
        """The samples of a part of its batch, which differs from it in length alone, that a pass was given; or None."""
        if given is None or not any(shape[1:] in self._tails for shape in given.first.shapes[:1]):
            return None
        most = max(self._sizes) if batch is None else batch.size
        return given.size if given.size < most else None

    @property
    def _read_for_passes(self) -> int:
        """The samples of the batches of the passes."""
        return sum(batch.size for batch in self._of_pass if batch is not None)

    def _are_of_batches(self) -> bool:
        """Whether passes were given no more elements than their batches have, so no other samples."""
        given = fmean(math.prod(shape) for given in self._seen for shape in given.first.shapes[:1] or [(0,)])
        return given <= fmean(sum(math.prod(shape) for shape in batch.shapes) for batch in self._batches)

    # --- the cases ------------------------------------------------------------------------------------------------

    def _of_batches(self) -> SeenSamples:
        """Passes were given whole batches, or several, and some a part of one."""
        sizes = [whole or part for whole, part in zip(self._whole, self._part, strict=True)]
        trained = sum(size or 0 for size in sizes)
        agree, given = "loader and model agree", self._given
        if given != trained and _are_equal(given, self._read):
            return SeenSamples(total=self._read, counted_by=agree)
        if None in sizes or self._may_have_kept_batches() or self._has_other_samples():
            return self._contradiction(given)
        if self._has_batch_of_each_pass:
            return SeenSamples(total=trained, counted_by=agree)
        if trained < self._read:
            return self._of_several_loaders(trained)
        passes = [new_passes([step]) for step in self._window]
        number = len(passes[0])
        if any(len(some) != number for some in passes):
            return self._of_leader(passes, sizes) or self._contradiction(given)
        if number == 1:
            return SeenSamples(
                total=trained, counted_by=agree
            )  # a batch that is trained in several steps counts in each
        if not self._read:
            return self._contradiction(given)
        # All steps have further passes on their batches.
        usual = mode(self._whole)
        of_steps = [
            min(sum(size or 0 for size in sizes[place * number :][:number]), max(loaded_in([step]), usual))
            for place, step in enumerate(self._window)
        ]
        return SeenSamples(total=sum(of_steps), counted_by=agree)

    def _of_leader(self, passes: list[list[Given | None]], sizes: Sequence[int | None]) -> SeenSamples | None:
        """Of the passes whose gradients the leading optimizer applied, if each step has one of them; else None."""
        total, places = 0, iter(sizes)
        for some in passes:
            pairs = zip(some, places, strict=False)
            own = [size or 0 for given, size in pairs if given is not None and not given.is_of_another]
            if len(own) > 1:
                return None
            total += sum(own)
        if len({batch.loader for batch in self._batches}) > 1:
            return None
        return SeenSamples(total=total, counted_by="loader and model agree")

    def _may_have_kept_batches(self) -> bool:
        """Whether passes were given several tensors, of which some may be of a loader that was read before."""
        counts = Counter(batch.loader for batch in self._batches)
        most = max(counts.values(), default=0)
        all_read = all(counts[loader] >= MOST * most for loader in {batch.loader for batch in self._all})
        return not all_read and any(len(given.sizes) > 1 for given in self._seen)

    def _has_other_samples(self) -> bool:
        """Whether a backward pass was given a further tensor that is none of several views of its batch."""
        pairs = ((given.sizes[0], size) for given in self._seen for size in given.sizes[1:])
        return any(first and size % first and size not in self._sizes for first, size in pairs)

    def _of_several_loaders(self, trained: int) -> SeenSamples:
        """Loaders gave more than the passes were given first."""
        given = self._given
        by_loader: Counter[int] = Counter()
        for batch in self._batches:
            by_loader[batch.loader] += batch.size
        if given > trained and (given >= self._read or abs(given - self._read) <= self._slack):
            return SeenSamples(total=self._read, counted_by="loader and model agree")
        if len(by_loader) == 1 or any(abs(trained - read) <= self._slack for read in by_loader.values()):
            return SeenSamples(total=trained, counted_by="model")
        return self._contradiction(trained)

    def _of_parts(self) -> SeenSamples:
        if sum(given.size for given in self._seen) == self._given:
            return SeenSamples(total=self._given, counted_by="model")
        # The parts may have a forward pass each, before the backward passes.
        if abs(self._given - self._read) <= self._slack:
            return SeenSamples(total=self._read, counted_by="loader and model agree")
        return self._contradiction(self._given)

    def _of_other_tensors(self) -> SeenSamples:
        """Passes were given tensors whose first dimension is no number of samples of a batch."""
        sizes = {given.size for given in self._seen}
        given = sum(given.size for given in self._seen)
        in_other_place = [
            given
            for given in self._seen
            if any(size in shape[1:] for shape in given.first.shapes for size in self._sizes)
        ]
        # Each sample of a loader may be one tensor of several rows, of which a model makes as many.
        are_chunks = self._sizes == {1} and all(given.first.rows == given.size > 1 for given in self._seen)
        if self._has_batch_of_each_pass and not are_chunks:
            total = self._read_for_passes
            is_multiple = all(size % mode(self._sizes) == 0 for size in sizes) and self._are_of_batches()
            is_joined = len(sizes) > 1 and min(sizes) > max(self._sizes) and self._are_of_batches()
            is_turned = len(in_other_place) >= MOST * len(self._seen)
            is_one_row = sizes == {1} and min(self._sizes) > 1
            if is_multiple or is_joined or is_turned or is_one_row:
                number = fmean(given.size for given in self._seen)
                than_model = f" (the model was given {number:.4g})" if number else ""
                return SeenSamples(total=total, counted_by=f"loader{than_model}")
        elif _are_equal(given, self._read):
            return SeenSamples(total=self._read, counted_by="loader and model agree")
        return self._contradiction(given)

    def _without_model(self) -> SeenSamples:
        """No model was seen."""
        if self._has_batch_of_each_pass:
            return SeenSamples(total=self._read_for_passes, counted_by="loader")
        is_read_in_each = all(any(batch.size for batch in step.batches) for step in self._window)
        loaders = {batch.loader for batch in self._batches}
        if is_read_in_each and (len(loaders) == 1 or len(self._passes) > len(self._batches)):
            return SeenSamples(total=self._read, counted_by="loader")
        passes, batches = len(self._passes), len(self._batches)
        return SeenSamples(unknown=f"{batches} batches were read for {passes} backward passes, and no model was seen")

    def _contradiction(self, given: float) -> SeenSamples:
        steps = len(self._window)
        return SeenSamples(unknown=f"loader: {self._read / steps:.4g}, model: {given / steps:.4g}")
