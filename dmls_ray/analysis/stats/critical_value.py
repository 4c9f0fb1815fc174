"""How many standard errors an interval of a comparison reaches, so that the verdicts of an answer hold together."""

from __future__ import annotations

import math
from functools import cache

from dmls_ray.analysis.stats.looks import FIRST_LOOK, Looks, error_of_look

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
    from scipy.stats import studentized_range

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
    else:
        family = float(studentized_range.ppf(1 - errors, max(trials, 2), degrees) / math.sqrt(2))
    if not was_looked_at:
        return family
    # A sweep stops when all pairs are decided. Of many trials, chance hardly decides all; so what looks add matters
    # most where one pair is open.
    errors_of_look = error_of_look(blocks, is_last=looks == "last") / families
    return max(family, float(stdtrit(degrees, 1 - errors_of_look / 2)))
