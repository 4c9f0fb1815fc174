"""When a sweep that repeats until its question is answered looks at its intervals, and what each look may spend.

Who looks at a 95% interval six times, and stops at the first that excludes "no difference", is wrong in 15 of 100
sweeps of two identical trials. So each look spends a share of the errors that all looks together may make
(alpha spending: Jennison & Turnbull, Group Sequential Methods, 2000, chapter 7).

From it follows how many standard errors an interval of a comparison reaches, so that the verdicts of an answer hold
together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Literal

Looks = Literal["none", "open", "last", "race"]
"""How the number of blocks came about. none: it was given. open: blocks were added until all was decided, and more
could have been added. last: no more could be added, so the last look may spend what the looks before it have left.
race: each look acts on every comparison for good, whatever the others are."""

FIRST_LOOK = 3
"""Blocks of the first look; fewer have no interval."""

_LOOKS = ((3, 0.05), (5, 0.05), (8, 0.10), (12, 0.15), (19, 0.25), (30, 0.30))
"""Blocks of the first looks, and the share of the errors that each spends."""
_GROWTH = 1.6
"""Later looks come at so many times the blocks of the one before."""
_LATER_SHARE = 0.05
"""Share of the first look after those; each further one has half of the one before, so all together come to 1."""

_SPENT = 0.07
"""What the shares are of. Looks share most of their runs, so that errors of 7% in sum are 5% of sweeps (simulation in
the tests)."""


def next_look(blocks: int) -> int:
    """Return after how many blocks a sweep with `blocks` blocks looks next."""
    return next(look for look, _ in _looks() if look > blocks)


def error_of_look(blocks: int, *, is_last: bool = False) -> float:
    """Return how often a comparison of two equal trials may be wrong after so many blocks, having been right before.

    A sweep whose time is up looks between two looks, and spends what the later one may.

    Args:
        blocks: number of blocks.
        is_last: whether no look can follow, so that this one spends what is left.
    """
    spent = 0.0
    for look, share in _looks():
        if look >= blocks:
            break
        spent += share
    if is_last:
        share = 1 - spent
    return _SPENT * share


def _looks() -> Iterator[tuple[int, float]]:
    """The blocks and the share of each look."""
    yield from _LOOKS
    last, _ = _LOOKS[-1]
    for number in count(1):
        yield math.ceil(last * _GROWTH**number), _LATER_SHARE / 2 ** (number - 1)


_ERRORS = 0.05
_ERRORS_OF_LOOKS = 0.035
"""Where a sweep looks several times and stops when all is decided. It makes all intervals hold in 95 of 100 sweeps."""


@cache
def critical_value(
    trials: int,
    degrees: float,
    blocks: int = 0,
    looks: Looks = "none",
    *,
    of_pair_alone: bool = False,
    families: int = 1,
) -> float:
    """Half-width of an interval in standard errors.

    Args:
        trials: of how many trials all pairs are compared.
        degrees: degrees of freedom of the standard error.
        blocks: number of blocks.
        looks: how it came about.
        of_pair_alone: whether the standard error is of the pair alone. Tukey's range is that of one common standard
            error; of many pairs, one has a small one by chance, so Student's t has the errors of a family (Sidak).
        families: how many families of pairs, each of another measure, share the errors (Bonferroni).
    """
    from scipy.special import stdtrit

    was_looked_at = looks == "open" or (looks == "last" and blocks > FIRST_LOOK)
    errors = _ERRORS
    if looks == "race":
        errors = error_of_look(blocks)
    if was_looked_at:
        errors = _ERRORS_OF_LOOKS
    errors /= families
    if of_pair_alone:
        pairs = max(trials * (trials - 1) // 2, 1)
        family = float(stdtrit(degrees, (1 + (1 - errors) ** (1 / pairs)) / 2))
    elif trials <= 2:
        family = float(stdtrit(degrees, 1 - errors / 2))  # the range of two is the square root of 2 times Student's t
    else:
        from scipy.stats import studentized_range  # takes half a second to load

        family = float(studentized_range.ppf(1 - errors, trials, degrees) / math.sqrt(2))
    if not was_looked_at:
        return family
    # A sweep stops when all pairs are decided. Of many trials, chance hardly decides all; so what looks add matters
    # most where one pair is open.
    errors_of_look = error_of_look(blocks, is_last=looks == "last") / families
    return max(family, float(stdtrit(degrees, 1 - errors_of_look / 2)))
