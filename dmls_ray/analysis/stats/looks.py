"""When a sweep that repeats until its question is answered looks at its intervals, and what each look may spend.

Who looks at a 95% interval six times, and stops at the first that excludes "no difference", is wrong in 15 of 100
sweeps of two identical trials. So each look spends a share of the errors that all looks together may make
(alpha spending: Jennison & Turnbull, Group Sequential Methods, 2000, chapter 7).
"""

from __future__ import annotations

import math
from typing import Literal

Looks = Literal["none", "open", "last", "race"]
"""How the number of blocks came about. none: it was given. open: blocks were added until all was decided, and more
could have been added. last: no more could be added, so the last look may spend what the looks before it have left.
race: each look acts on every comparison for good, whatever the others are."""

FIRST_LOOK = 3
"""Blocks of the first look; fewer have no interval."""

_LOOKS = (3, 5, 8, 12, 19, 30)
_GROWTH = 1.6
"""Later looks come at so many times the blocks of the one before."""

_SHARES = (0.05, 0.05, 0.10, 0.15, 0.25, 0.30)
_LATER_SHARE = 0.05
"""Share of the first look after those; each further one has half of the one before, so all together come to 1."""

_SPENT = 0.07
"""What the shares are of. Looks share most of their runs, so that errors of 7% in sum are 5% of sweeps (simulation in
the tests)."""


def next_look(blocks: int) -> int:
    """Return after how many blocks a sweep with `blocks` blocks looks next."""
    return _blocks_of(_index_of(blocks + 1))


def error_of_look(blocks: int, *, is_last: bool = False) -> float:
    """Return how often a comparison of two equal trials may be wrong after so many blocks, having been right before.

    Args:
        blocks: number of blocks.
        is_last: whether no look can follow, so that this one spends what is left.
    """
    index = _index_of(blocks)
    if is_last:
        return _SPENT * (1 - sum(map(_share_of, range(index))))
    return _SPENT * _share_of(index)


def _share_of(index: int) -> float:
    return _SHARES[index] if index < len(_SHARES) else _LATER_SHARE / 2 ** (index - len(_SHARES))


def _index_of(blocks: int) -> int:
    """The first look with at least so many blocks: a sweep whose time is up looks between two."""
    index = 0
    while _blocks_of(index) < blocks:
        index += 1
    return index


def _blocks_of(index: int) -> int:
    if index < len(_LOOKS):
        return _LOOKS[index]
    return math.ceil(_LOOKS[-1] * _GROWTH ** (index - len(_LOOKS) + 1))
