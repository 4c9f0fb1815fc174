"""Which of some comparisons a headline is about, and what it says of all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dmls_ray.analysis.findings.effects import Comparison


def lead_of(candidates: Sequence[Comparison], losers: Collection[str], *, is_amount: bool) -> tuple[str, Comparison]:
    """The headline, and the comparison that it is about.

    The one that gains most by the first measure by which any gains beyond chance. If none gains: of amounts, the last
    one; of choices, the one that is nearest to a gain, or that differs most where none differs beyond chance.

    Args:
        candidates: the values of a field against its baseline; one at least.
        losers: trial_id of those that lose accuracy: none of these is recommended, unless all lose.
        is_amount: whether the values are amounts, as batches or ranks, rather than choices.
    """
    kept = [item for item in candidates if item[0].pair.trial.trial_id not in losers] or list(candidates)
    effects = [effect for comparison in kept for effect in comparison if effect.measure.is_outcome]
    for name in dict.fromkeys(effect.measure.name for effect in effects):
        gains = [_gain(comparison, name) for comparison in kept]
        if any(gains):
            return "pair", kept[gains.index(max(gains))]
    if is_amount or len(candidates) == 1:
        return "pair", kept[-1]
    of_outcome = [effect for comparison in candidates for effect in comparison if effect.measure.is_outcome]
    differing = [effect for effect in of_outcome if effect.verdict in ("more", "less")]
    if differing:
        is_better = any(effect.measure.is_judged and effect.gain > 0 for effect in differing)
        headline = "none_without_loss" if is_better else "none_better"
        return headline, max(kept, key=lambda item: item[0].contrast.centre * item[0].measure.better)
    return "none_differs", max(kept, key=lambda item: item[0].size)


def lossless_of(lead: Comparison, candidates: Sequence[Comparison]) -> Comparison:
    """The candidate that gains most without a loss, by the first measure by which the lead gains; empty without one."""
    gained = [effect.measure.name for effect in lead if _gain(lead, effect.measure.name)]
    if not gained or not _loses(lead):
        return ()
    kept = [comparison for comparison in candidates if _gain(comparison, gained[0]) and not _loses(comparison)]
    return max(kept, key=lambda comparison: _gain(comparison, gained[0]), default=())


def _loses(comparison: Comparison) -> bool:
    return any(effect.measure.is_judged and effect.sign and effect.gain < 0 for effect in comparison)


def _gain(comparison: Comparison, name: str) -> float:
    """How large the gain by a measure is; 0 without one beyond chance, and where speed or accuracy pay for memory."""
    for effect in comparison:
        if not effect.measure.is_judged and _loses(comparison):
            continue
        if effect.measure.is_negligible:
            continue
        # Without a better direction, any difference counts.
        if effect.measure.name == name and effect.sign and effect.gain >= 0:
            return effect.size
    return 0.0


def worst_of(candidates: Sequence[Comparison]) -> Comparison:
    """The candidate that loses most beyond chance, by the first measure by which any loses; empty without one."""
    effects = [effect for comparison in candidates for effect in comparison if effect.measure.is_judged]
    for name in dict.fromkeys(effect.measure.name for effect in effects):
        losses = [_loss(comparison, name) for comparison in candidates]
        if any(losses):
            return candidates[losses.index(max(losses))]
    return ()


def _loss(comparison: Comparison, name: str) -> float:
    """How large the loss by a measure is; 0 without one beyond chance."""
    for effect in comparison:
        if effect.measure.name == name and effect.verdict in ("more", "less") and effect.gain < 0:
            return effect.size
    return 0.0
