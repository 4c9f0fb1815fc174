"""Which points no other one beats."""

from __future__ import annotations

from collections.abc import Sequence


def front(points: Sequence[Sequence[float]]) -> list[int]:
    """Indices of the points that no other beats: none is as small in every coordinate and smaller in one.

    Args:
        points: coordinates of each; all of them are to be small.
    """
    return [
        index
        for index, point in enumerate(points)
        if not any(
            all(one <= other for one, other in zip(rival, point, strict=True)) and tuple(rival) != tuple(point)
            for rival in points
        )
    ]
