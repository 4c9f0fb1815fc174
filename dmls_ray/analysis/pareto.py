"""Which of several compromises nothing beats."""

from __future__ import annotations

from collections.abc import Sequence


def front(points: Sequence[Sequence[float]]) -> list[int]:
    """The points that no other is at least as good as in everything and better than in something, by their places.

    Points that are equal in everything are all on the front, or none of them is.

    Args:
        points: of each, what it costs; less is better throughout, so give an accuracy with a minus.
    """
    best: list[int] = []
    # In the order of their values a point comes after all that could beat it, and what is beaten needs no watching:
    # whoever beat it beats all that it would.
    for place in sorted(range(len(points)), key=lambda place: tuple(points[place])):
        if not any(_beats(points[other], points[place]) for other in best):
            best.append(place)
    return sorted(best)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return tuple(one) != tuple(other) and all(mine <= its for mine, its in zip(one, other, strict=True))
