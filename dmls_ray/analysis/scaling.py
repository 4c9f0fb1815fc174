"""Laws of scaling fitted to measured speed-ups, with intervals, and refused where there are too few world sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dmls_ray.analysis.stats import Estimate, estimate

BEYOND = 4
"""A curve is not told of beyond so many times the largest measured world size."""

Points = Mapping[int, Mapping[int, float]]
"""world_size -> block -> speed-up against world size 1 without DDP in that block."""

Law = Callable[..., float]


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
    """World size up to which it is held to what was measured."""

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


_LAWS: tuple[tuple[str, Law, dict[str, float]], ...] = (
    ("Amdahl's law", amdahl, {"serial share": 1.0}),
    ("universal scalability law", universal, {"contention": 1.0, "coherency": np.inf}),
)
"""Name, law, and its parameters with the most that each can be; the least is 0."""


def fits(points: Points, *, strong: bool = True) -> list[Fit | Refusal]:
    """Both laws, as far as the points allow.

    Args:
        points: the measured speed-ups; world size 1 is 1 by definition and counts as measured.
        strong: whether the problem stayed the same as ranks were added; Amdahl's law is of that alone.
    """
    told: list[Fit | Refusal] = []
    blocks = sorted(set.intersection(*(set(by_block) for by_block in points.values()))) if points else []
    sizes = sorted({1, *points})
    for name, law, most in _LAWS:
        if law is amdahl and not strong:
            told.append(
                Refusal(name, "it is about a problem that stays the same, and global_batch grew with the ranks")
            )
        elif len(sizes) < len(most) + 1:
            told.append(Refusal(name, f"it needs {len(most) + 1} world sizes, and {len(sizes)} were measured"))
        elif not blocks:
            told.append(Refusal(name, "no block has all world sizes"))
        else:
            each = [_fitted(law, most, [(size, points[size][block]) for size in sizes if size > 1]) for block in blocks]
            found = {
                key: estimate(list(values), "share" if limit == 1 else "value")
                for (key, limit), values in zip(most.items(), zip(*each, strict=True), strict=True)
            }
            told.append(Fit(name, law, found, tuple(each), sizes[-1]))
    return told


def _fitted(law: Law, most: Mapping[str, float], points: Sequence[tuple[int, float]]) -> tuple[float, ...]:
    """The parameters that come closest to these speed-ups by least squares of their logarithms, since noise is a
    share.
    """
    from scipy.optimize import least_squares  # takes half a second to load

    def off(parameters: Sequence[float]) -> list[float]:
        return [float(np.log(law(ranks, *parameters) / measured)) for ranks, measured in points]

    solved = least_squares(off, [0.1, 0.01][: len(most)], bounds=(0, list(most.values())))
    return tuple(map(float, solved.x))
