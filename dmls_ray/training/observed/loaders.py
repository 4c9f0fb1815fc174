"""`Batch`: what a `DataLoader` gave, with its number of samples."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.utils.data import IterableDataset

from dmls_ray.training.compat import dataset_of, next_batch_size, sampled_size
from dmls_ray.training.observed.contents import Content, Shape

_LOADER = "_dmls_ray_loader"
"""Attribute of an iterator: what identifies its loader, and whether that reads a stream."""


class Batch(NamedTuple):
    """What a loader gave."""

    size: int
    """Its samples, as the loader chose them, whatever `collate_fn` made of them; 0 where the loader has no batches."""
    loader: int
    """Identifies the loader, by the kind and size of its data set and of its batches: both may be made anew."""
    shapes: tuple[Shape, ...] = ()
    """Shapes of its tensors."""
    is_visible: bool = True
    """Whether its size is a dimension of one of its tensors, or the length of one of its lists."""


def batch_of(iterator: Any, content: Content) -> Batch:
    """The batch that an iterator of a loader has just given.

    Args:
        iterator: the iterator.
        content: of the batch, as `collate_fn` made it.
    """
    size = next_batch_size(iterator)
    shapes = tuple([leaf.shape for leaf in content.leaves])
    kept = iterator.__dict__.get(_LOADER)
    if kept is None:
        dataset = dataset_of(iterator)
        is_stream = isinstance(dataset, IterableDataset)
        samples = len(dataset) if hasattr(dataset, "__len__") and not is_stream else 0
        loader = hash((type(dataset), samples, sampled_size(iterator)))
        kept = iterator.__dict__[_LOADER] = loader, is_stream
    loader, is_stream = kept
    if is_stream and size not in content.lengths:
        # The last batch of a stream is shorter than its sampler asked for.
        heads = {shape[0] for shape in shapes if shape}
        if len(heads) == 1:
            size = min(size, *heads)
    is_visible = size in content.lengths or _has_dimension(shapes, size)
    return Batch(size, loader, shapes, is_visible)


def _has_dimension(shapes: tuple[Shape, ...], size: int) -> bool:
    return any(size in shape[:2] for shape in shapes)
