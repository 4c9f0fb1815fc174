"""Runs whose timed steps contain what is no step: their mean step is far above the median."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.stats.formatting import RATIO
from dmls_ray.analysis.summary.phrases import describe_configuration, join_names
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord

_RATIO = 2.0
"""Mean over median from which a note names a run. It was at most 1.44 in 1,500 runs of results/reference, and 4.8 to
6.4 where a model was rewritten inside the timed steps."""

_STEPS = 10
"""Median steps that the time beyond the median must be worth. One slow step of a few is no reason for a note."""

_MOST_NAMED = 3
"""Runs of a trial that are named by their identifier."""


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


def describe_uneven_steps(rows: Sequence[Row]) -> str:
    """The sentence that names such runs; empty without any."""
    names = []
    for row in rows:
        ratios = {record.run_id: uneven_step_ratio(record) for record in row.timed}
        uneven = {run_id: ratio for run_id, ratio in ratios.items() if ratio is not None}
        if uneven:
            names.append(
                f"{describe_configuration(row.factors)} ({_range(uneven)} times, {_runs(uneven, len(ratios))})"
            )
    if not names:
        return ""
    return (
        f"The mean step is far above the median in {join_names(names)}: what is no step, or a few slow steps, lies in "
        "the timed steps. Rates, s/epoch and the parts of a step contain it; step_ms_p50 does not."
    )


def _range(uneven: dict[str, float]) -> str:
    ends = dict.fromkeys(RATIO(ratio) for ratio in (min(uneven.values()), max(uneven.values())))
    return " to ".join(ends)


def _runs(uneven: dict[str, float], count: int) -> str:
    """Which of a number of runs: all of them, or the identifiers of the first."""
    if len(uneven) == count > 1:
        return f"all {count} runs"
    named = list(uneven)[:_MOST_NAMED]
    if len(uneven) > _MOST_NAMED:
        named.append(f"{len(uneven) - _MOST_NAMED} more")
    return ", ".join(named)
