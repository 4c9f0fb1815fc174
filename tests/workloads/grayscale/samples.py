"""Pictures on which an implementation may go wrong."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

_random = np.random.default_rng(7)


def _random_pictures(*shape: int) -> NDArray[np.uint8]:
    return _random.integers(0, 256, (*shape, 3), dtype=np.uint8)


EXTREME = np.array(list(itertools.product((0, 1, 127, 128, 254, 255), repeat=3)), dtype=np.uint8).reshape(1, 12, 18, 3)

PICTURES: dict[str, NDArray[np.uint8]] = {
    "random": _random_pictures(3, 32, 32),
    "extreme levels": EXTREME,
    "of one pixel": _random_pictures(1, 1, 1),
    "of odd sides": _random_pictures(2, 33, 129),
    "of one row": _random_pictures(1, 1, 1000),
    "of one column": _random_pictures(5, 517, 1),
    # Threads share them in the middle of one, however few they are.
    "many": _random_pictures(41, 30, 31),
}
