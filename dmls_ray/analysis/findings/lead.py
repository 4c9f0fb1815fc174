"""Which comparison the headline is about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from dmls_ray.analysis.findings.effects import Comparison, Effect

Lead = Literal["pair", "none_better", "none_differs"]


def lead_of(candidates: Sequence[Comparison], losers: Collection[str], *, is_amount: bool) -> tuple[Lead, Comparison]:
    """The comparison of the headline, and what it is an example of.

    The one that gains most by the first measure by which any gains beyond chance. If none gains: of amounts, the last
    one; of choices, the one that is nearest to a gain, or that differs most where none differs beyond chance.

    Args:
        candidates: the values of a field against its baseline; one at least.
        losers: trial_id of those that lose accuracy: none of these is recommended, unless all lose.
        is_amount: whether the values are amounts, as batches or ranks, rather than choices.
    """
    kept = [item for item in candidates if item[0].pair.row.trial_id not in losers] or list(candidates)
    effects = [effect for comparison in kept for effect in comparison if effect.measure.is_outcome]
    metrics = dict.fromkeys(effect.measure.name for effect in effects)
    for metric in metrics:
        gains = [effect for effect in effects if effect.measure.name == metric and _is_gain(effect)]
        if gains:
            return "pair", _comparison_with(kept, max(gains, key=lambda effect: effect.size))
    if is_amount or len(candidates) == 1:
        return "pair", kept[-1]
    first = [comparison[0] for comparison in kept]
    if any(effect.sign for effect in effects):
        return "none_better", _comparison_with(
            kept, max(first, key=lambda effect: effect.value * effect.measure.better)
        )
    return "none_differs", _comparison_with(kept, max(first, key=lambda effect: effect.size))


def _is_gain(effect: Effect) -> bool:
    """Whether an effect is better beyond chance; of a measure without a better direction, whether it differs."""
    return bool(effect.sign) and not effect.is_worse


def _comparison_with(comparisons: Sequence[Comparison], effect: Effect) -> Comparison:
    return next(comparison for comparison in comparisons if any(item is effect for item in comparison))
