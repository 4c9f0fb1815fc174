"""Laws of scaling fitted to measured speed-ups, with intervals, and refused where there are too few world sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dmls_ray.analysis.stats.formatting import RATIO, format_interval
from dmls_ray.analysis.stats.intervals import Estimate, bonferroni_level, estimate

BEYOND = 4
"""A curve ends at this multiple of the largest measured world size."""

Points = Mapping[int, Mapping[int, float]]
"""world_size -> block -> speed-up against world size 1 without DDP in that block."""

Law = Callable[..., float]

_NEGLIGIBLE = 0.05
"""A relative deviation below this is no error of a curve, however narrow the interval."""


def amdahl(ranks: float, serial: float) -> float:
    """Speed-up of a fixed problem of which a share cannot be done in parallel (Amdahl, AFIPS 1967)."""
    return 1 / (serial + (1 - serial) / ranks)


def universal(ranks: float, contention: float, coherency: float) -> float:
    """Relative capacity where ranks wait for what they share and for each other (Gunther, Guerrilla Capacity Planning,
    2007, chapter 4): it can fall as ranks are added, and below 1.
    """
    return ranks / (1 + contention * (ranks - 1) + coherency * ranks * (ranks - 1))


@dataclass(frozen=True)
class Fit:
    """A law fitted to the speed-ups of each block by itself; what it says is the median over blocks, with its
    interval.
    """

    name: str
    law: Law
    parameters: dict[str, Estimate]
    by_block: tuple[tuple[float, ...], ...]
    largest: int
    """World size up to which it is compared with the measurements."""

    @property
    def farthest(self) -> int:
        """World size up to which it may be drawn; beyond `largest` it is an extrapolation, and must be called so."""
        return BEYOND * self.largest

    def curve(self, world_size: float) -> Estimate:
        """The speed-up at a world size.

        Raises:
            ValueError: it is beyond `farthest`.
        """
        if world_size > self.farthest:
            raise ValueError(f"world_size={world_size} is beyond {BEYOND} times the largest measured, {self.largest}.")
        return estimate([self.law(world_size, *found) for found in self.by_block], "ratio")


@dataclass(frozen=True)
class Refusal:
    """Why a law is not fitted."""

    name: str
    reason: str


_LAWS: tuple[tuple[str, Law, tuple[str, ...]], ...] = (
    ("Amdahl's law", amdahl, ("serial share",)),
    ("universal scalability law", universal, ("contention", "coherency")),
)
"""Name, law, and its parameters."""


def fits(points: Points, *, strong: bool = True) -> list[Fit | Refusal]:
    """Both laws, as far as the points allow.

    A law needs one world size more than it has parameters, besides world size 1: that is 1 by definition and holds no
    law to anything. And its curve must go through what was measured.

    Args:
        points: the measured speed-ups of world sizes above 1.
        strong: whether the problem stayed the same as ranks were added; Amdahl's law is of that alone.
    """
    return [_fit(name, law, parameters, points, strong) for name, law, parameters in _LAWS]


def _fit(name: str, law: Law, parameters: Sequence[str], points: Points, strong: bool) -> Fit | Refusal:
    sizes = sorted(points)
    blocks = sorted(set.intersection(*(set(by_block) for by_block in points.values()))) if points else []
    if law is amdahl and not strong:
        return Refusal(name, "it is about a problem that stays the same, and global_batch grew with the ranks")
    if len(sizes) < len(parameters) + 1:
        return Refusal(name, f"it needs {len(parameters) + 1} world sizes above 1, and {len(sizes)} were measured")
    if not blocks:
        return Refusal(name, "no block has all world sizes")
    each = [_fitted(law, len(parameters), [(size, points[size][block]) for size in sizes]) for block in blocks]
    found = {key: estimate(list(values)) for key, values in zip(parameters, zip(*each, strict=True), strict=True)}
    fit = Fit(name, law, found, tuple(each), sizes[-1])
    for size in sizes:
        seen = estimate([points[size][block] for block in blocks], "ratio", level=bonferroni_level(len(sizes)))
        predicted = fit.curve(size)
        is_far = abs(predicted.median / seen.median - 1) > _NEGLIGIBLE
        if is_far and seen.low is not None and seen.high is not None and not seen.low <= predicted.median <= seen.high:
            return Refusal(
                name,
                f"it does not hold here: at world_size {size} it would be a speed-up of {predicted.median:.2f}, and "
                f"{format_interval(seen, RATIO)} was measured",
            )
    return fit


def _fitted(law: Law, count: int, points: Sequence[tuple[int, float]]) -> tuple[float, ...]:
    """The parameters that come closest to these speed-ups by least squares of their logarithms, since noise is a share.

    They may be a little below 0, where noise has ranks do better than the ideal: cut off at 0, their interval would
    shrink to nothing there.
    """
    from scipy.optimize import least_squares  # takes half a second to load

    def off(parameters: Sequence[float]) -> list[float]:
        return [float(np.log(law(ranks, *parameters) / measured)) for ranks, measured in points]

    most = max(ranks for ranks, _ in points)
    # Where the denominator of the law stays above 0.
    least = [-0.4 / (most - 1), -0.4 / (most * (most - 1))][:count]
    solved = least_squares(off, [0.1, 0.01][:count], bounds=(least, [1.0, np.inf][:count]))
    return tuple(map(float, solved.x))
