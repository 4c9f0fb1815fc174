"""`Batch`: what a `DataLoader` gave, with its number of samples."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset

from dmls_ray.training.compat import dataset_of, next_batch_size, sampled_size
from dmls_ray.training.observed.contents import Content, Shape

_BEFORE = "_dmls_ray_batch"
"""Attribute of an iterator: the batch before; most batches are like it."""
_MOST_PARTS = 4
"""Data sets that are parts of each other that are looked through."""
_NUMBERS: dict[int, tuple[Callable[[], Any], int]] = {}
"""The data sets that were read, by their ids, with their numbers: one may be made in the place of one that is gone."""
_NEXT = itertools.count()


class Batch(NamedTuple):
    """What a loader gave."""

    size: int
    """Its samples, as the loader chose them, whatever `collate_fn` made of them; 0 where the loader has no batches."""
    loader: int
    """Identifies the loader, by the kind and size of its data set and of its batches: both may be made anew."""
    shapes: tuple[Shape, ...] = ()
    """Shapes of its tensors."""
    data: tuple[int, ...] = ()
    """The number of samples of the data set, and of those that it is a part of; of a stream, what identifies it."""
    dataset: int = 0
    """The number of the data set, among all that were read."""


def batch_of(iterator: Any, content: Content) -> Batch:
    """The batch that an iterator of a loader has just given.

    Args:
        iterator: the iterator.
        content: of the batch, as `collate_fn` made it.
    """
    size = next_batch_size(iterator)
    shapes = tuple([leaf.shape for leaf in content.leaves])
    before: Batch | None = iterator.__dict__.get(_BEFORE)
    if before is None or before.size != size or before.shapes != shapes:
        before = iterator.__dict__[_BEFORE] = _new_batch(iterator, size, shapes, content.lengths)
    return before


def _new_batch(iterator: Any, size: int, shapes: tuple[Shape, ...], lengths: list[int]) -> Batch:
    dataset = dataset_of(iterator)
    is_stream = isinstance(dataset, IterableDataset)
    samples = len(dataset) if hasattr(dataset, "__len__") and not is_stream else 0
    loader = hash((type(dataset), samples, sampled_size(iterator)))
    if is_stream and size not in lengths:
        # The last batch of a stream is shorter than its sampler asked for.
        heads = {shape[0] for shape in shapes if shape}
        if len(heads) == 1:
            size = min(size, *heads)
    return Batch(size, loader, shapes, (samples or id(dataset), *_wholes(dataset)), _number_of(dataset))


def _number_of(dataset: Any) -> int:
    known = _NUMBERS.get(id(dataset))
    if known is None or known[0]() is not dataset:
        _NUMBERS[id(dataset)] = known = _reference_to(dataset), next(_NEXT)
    return known[1]


def _reference_to(dataset: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(dataset)
    except TypeError:  # a list has no weak one
        return lambda: dataset


def _wholes(dataset: Any) -> Iterator[int]:
    """The sizes of the data sets of which one is a part, as `Subset` is, the smallest first."""
    for _ in range(_MOST_PARTS):
        dataset = getattr(dataset, "dataset", None)
        if not hasattr(dataset, "__len__"):
            return
        yield len(dataset)
