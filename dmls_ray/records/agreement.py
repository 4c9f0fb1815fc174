"""Whether the ranks of a run trained one model together, by what each of them reported.

The parameters decide. Only where they were equal all the time, the number of collectives says whether the ranks
communicated their gradients or trained alone on the same samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmls_ray.records.epoch_and_rank import RankRecord

_EQUAL = 1e-5
"""Distance of parameters, relative to their norm, from which they differ: machines round differently."""

_APART = 1e-7
"""Distance of sampled parameters from which they differ in training, where small learning rates change little."""

_BROUGHT_TOGETHER = 0.1
"""Share of the distance in training that is left where ranks have averaged their parameters."""


def independence_of(ranks: Sequence[RankRecord]) -> str:
    """Why the ranks did not train one model together; empty if they did, or where that is unknown."""
    if len(ranks) < 2:
        return ""
    distance = _distance([rank.parameter_sketch for rank in ranks])
    if distance is None:
        return ""
    in_training = _distance_in_training(ranks)
    if distance > _EQUAL:
        # One rank may use other parameters after its training, as a moving average.
        were_equal = in_training is not None and in_training <= _APART and not _few_collectives(ranks)
        if were_equal or _have_one_loss(ranks):
            return ""
        return f"the ranks ended with different parameters, {distance:.2g} of their norm apart"
    if in_training is not None and in_training > _APART and distance <= _BROUGHT_TOGETHER * in_training:
        return ""
    return _few_collectives(ranks)


def _few_collectives(ranks: Sequence[RankRecord]) -> str:
    """That the ranks communicated less often than they made optimizer steps; empty if not, or where it is unknown."""
    collectives = [rank.metrics["collectives"] for rank in ranks if "collectives" in rank.metrics]
    steps = min(rank.metrics.get("optimizer_steps", 0) for rank in ranks)
    if len(collectives) < len(ranks) or max(collectives) >= steps:
        return ""
    number = f"{max(collectives):,}" if max(collectives) else "no"
    return f"{number} collectives in {steps:,} optimizer steps, which made neither gradients nor parameters equal"


def _distance(sketches: Sequence[Sequence[float]]) -> float | None:
    """The largest distance of a rank's parameters from the first rank's, relative to their norm; None where unknown."""
    first, *others = sketches
    values = [value for sketch in sketches for value in sketch]
    if len({len(sketch) for sketch in sketches}) > 1 or not first or not all(map(_is_finite, values)):
        return None
    # Other numbers of elements are other parts of one model.
    if len({sketch[0] for sketch in sketches}) > 1:
        return None
    norm = math.sqrt(first[1]) or 1.0
    return max(abs(a - b) / norm for other in others for a, b in zip(first[2:], other[2:], strict=True))


def _distance_in_training(ranks: Sequence[RankRecord]) -> float | None:
    """The largest distance at a sampled step; None without samples."""
    distances = [
        abs(value - values[0])
        for values in zip(*(rank.sampled_parameters for rank in ranks), strict=False)
        if all(map(_is_finite, values))
        for value in values[1:]
    ]
    return max(distances, default=None)


def _have_one_loss(ranks: Sequence[RankRecord]) -> bool:
    """Whether ranks with different parameters compute one loss, as with parts of a model: all ranks have the loss of
    each sampled step, or only some ranks have one."""
    samples = list(zip(*(rank.sampled_losses for rank in ranks), strict=False))
    return bool(samples) and all(map(_is_one_loss, samples))


def _is_one_loss(losses: Sequence[float]) -> bool:
    known = [loss for loss in losses if _is_finite(loss)]
    if not known:
        return False
    is_of_some = len(known) < len(losses)
    return is_of_some or max(known) - min(known) <= _EQUAL * abs(known[0])


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
