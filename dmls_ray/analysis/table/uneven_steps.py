"""Runs whose timed steps contain what is no step: their mean step is far above the median."""

from __future__ import annotations

from dmls_ray.records.model import RunRecord

_RATIO = 2.0
"""Mean over median from which a note names a run. It was at most 1.44 in 1,500 runs of results/reference, and 4.8 to
6.4 where a model was rewritten inside the timed steps."""

_STEPS = 10
"""Median steps that the time beyond the median must be worth. One slow step of a few is no reason for a note."""


def uneven_step_ratio(record: RunRecord) -> float | None:
    """Mean of the counted steps divided by their median, if so much of the time is beyond the median that a rate is not
    that of the steps; else None.

    None for a user-defined function, which has no `warmup_steps`: what it does between two steps counts as a part of
    the step after it, and no rate follows from these times.
    """
    metrics = record.metrics
    if not all(metrics.get(name) for name in ("train_s", "steps", "step_ms_p50")) or "warmup_steps" not in metrics:
        return None
    counted = metrics["steps"] - metrics["warmup_steps"]
    if counted <= 0:
        return None
    ratio = metrics["train_s"] * 1e3 / counted / metrics["step_ms_p50"]
    is_uneven = ratio >= _RATIO and (ratio - 1) * counted >= _STEPS
    return ratio if is_uneven else None
