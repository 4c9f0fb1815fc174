"""What batches and inputs of models consist of: the shapes of their tensors and the lengths of their lists."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MOST_LEAVES = 8
"""Tensors that are looked at: those of the first samples, where a batch is a list of samples."""
_DEEPEST = 4
"""Lists, mappings and objects within each other that are looked into."""
_DIGESTED = 4096
"""Elements of a tensor that its digest is made of."""

_SEQUENCES = list, tuple
_PLAIN = str, bytes, int, float

Shape = tuple[int, ...]


@dataclass(slots=True)
class Content:
    """The parts of a batch, or of what a model is given."""

    leaves: list[Any]
    """The first tensors and arrays, as they come."""
    lengths: list[int]
    """Lengths of the lists and tuples on the way to them."""


def content_of(value: Any) -> Content:
    """Look into a batch: lists, tuples, mappings, and objects with attributes, as those of dataclasses."""
    if isinstance(value, Tensor):
        return Content([value], [])
    content = Content([], [])
    _look(value, content, 0)
    return content


def _look(value: Any, content: Content, depth: int) -> None:
    parts: Iterable[Any]
    if isinstance(value, _SEQUENCES):
        content.lengths.append(len(value))
        parts = value
    elif value is None or isinstance(value, _PLAIN):
        return
    elif isinstance(getattr(value, "shape", None), tuple):
        content.leaves.append(value)
        return
    elif callable(getattr(value, "values", None)) and hasattr(value, "keys"):
        parts = value.values()
    else:
        parts = getattr(value, "__dict__", {}).values()
    if depth == _DEEPEST:
        return
    leaves = content.leaves
    for part in parts:
        if len(leaves) >= MOST_LEAVES:
            return
        if isinstance(part, Tensor):
            leaves.append(part)
        else:
            _look(part, content, depth + 1)


def digest_of(leaves: Sequence[Any]) -> int:
    """A number that is equal for equal tensors, from elements spread over each of them; 0 without a tensor."""
    digest = 0
    for leaf in leaves:
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided and leaf.numel():
            flat = leaf.detach().flatten()
            spread = flat[:: max(1, len(flat) // _DIGESTED)].cpu().contiguous()
            digest = zlib.crc32(spread.view(torch.uint8).numpy().tobytes(), digest)
    return digest


def has_rows_twice(tensor: Tensor) -> bool:
    """Whether a tensor consists of two equal halves, or of pairs of equal rows; of a row alone says nothing."""
    if tensor.ndim < 2 or len(tensor) % 2 or len(tensor) < 4 or tensor.layout is not torch.strided:
        return False
    pairs = tensor.detach().unflatten(0, (-1, 2))
    halves = tensor.detach().unflatten(0, (2, -1)).transpose(0, 1)
    return any(torch.equal(rows[:, 0], rows[:, 1]) and not torch.equal(rows[0], rows[1]) for rows in (pairs, halves))
