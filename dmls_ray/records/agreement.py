"""Whether the ranks of a run trained one model together, by what each of them reported."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dmls_ray.records.epoch_and_rank import RankRecord

_EQUAL = 1e-5
"""Distance of parameters, relative to their norm, from which they differ: machines round differently."""


def independence_of(ranks: Sequence[RankRecord]) -> str:
    """Why the ranks did not train one model together; empty if they did, or where that is unknown."""
    return "; ".join(_reasons(ranks)) if len(ranks) > 1 else ""


def _reasons(ranks: Sequence[RankRecord]) -> Iterator[str]:
    steps = min(rank.optimizer_steps or 0 for rank in ranks)
    collectives = [rank.collectives for rank in ranks if rank.collectives is not None]
    if steps and len(collectives) == len(ranks) and max(collectives) < steps:
        number = f"{max(collectives):,}" if max(collectives) else "no"
        yield f"{number} collectives in {steps:,} optimizer steps, so gradients were not communicated in each of them"
    distance = _distance([rank.parameter_sketch for rank in ranks])
    if distance > _EQUAL:
        yield f"the ranks ended with different parameters, {distance:.2g} of their norm apart"


def _distance(sketches: Sequence[Sequence[float]]) -> float:
    """The largest distance of a rank's parameters from the first rank's, relative to their norm; 0 where unknown."""
    first, *others = sketches
    values = [value for sketch in sketches for value in sketch]
    if len({len(sketch) for sketch in sketches}) > 1 or not first or not all(map(_is_finite, values)):
        return 0.0
    # Other numbers of elements are other parts of one model.
    if len({sketch[0] for sketch in sketches}) > 1:
        return 0.0
    norm = math.sqrt(first[1]) or 1.0
    return max(abs(a - b) / norm for other in others for a, b in zip(first[2:], other[2:], strict=True))


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
