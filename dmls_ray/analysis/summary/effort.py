"""How much training went into the accuracies that a sentence compares: epochs, learning rate, batch and steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dmls_ray.analysis.metrics import resolution_of
from dmls_ray.analysis.results import factors_of
from dmls_ray.analysis.stats.intervals import Estimate, estimate
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord
from dmls_ray.records.training_metrics import is_loss


def describe_effort(rows: Sequence[Row], axis: str = "", *, ordered: bool = False, only_differing: bool = False) -> str:
    """`5 epochs, lr 0.001, global_batch 16 to 128, 450 to 60 optimizer steps`; empty where nothing is known.

    Of what differs alone, `global_batch 16 to 128, fewer optimizer steps (450 to 60)`.

    Accuracies follow from these as much as from the axis. What is equal at all trials and follows from the rest, as
    the number of steps, is left out.

    Args:
        rows: the trials that are compared.
        axis: the field in which they differ; left out.
        ordered: whether the trials are in the order of the axis; else ranges of more than two go from the least to the
            largest.
        only_differing: leave out what is equal at all trials.
    """
    by_name: dict[str, list[list[float]]] = {}
    for row in rows:
        values = dict(_effort(row.counted[0])) if row.counted else {}
        for name in _PHRASES.keys() & values.keys():
            by_name.setdefault(name, []).append([values[name]])
    parts = []
    for name, (phrase, is_always_named) in _PHRASES.items():
        found = [value for values in by_name.get(name, ()) for value in values]
        is_axis = name == axis or (ordered and found == [row.factors.get(axis) for row in rows])
        is_left_out = len(set(found)) == 1 and (only_differing or not is_always_named)
        if not found or is_axis or is_left_out:
            continue
        in_order = (ordered or len(found) == 2) and found[0] != found[-1]
        ends = (found[0], found[-1]) if in_order else (min(found), max(found))
        text = " to ".join(dict.fromkeys(f"{end:,.10g}" for end in ends))
        if name == "steps" and in_order and only_differing:
            # Said as what it is, the first thing to suspect behind a loss of accuracy.
            parts.append(f"{'fewer' if ends[1] < ends[0] else 'more'} optimizer steps ({text})")
        else:
            parts.append(phrase.format(text, "" if text == "1" else "s"))
    return ", ".join(parts)


def training_caveat(row: Row, base: Row, metric: str) -> str:
    """What may explain that a trial learned less than another: fewer optimizer steps, and that it was still learning.

    ` (60 optimizer steps instead of 450, still rising)`; empty where neither holds.

    Args:
        row: the trial that has the lower accuracy or the higher loss.
        base: the trial that it is compared with.
        metric: the accuracy or the loss.
    """
    parts = []
    steps, base_steps = (item.counted[0].metrics.get("steps") for item in (row, base))
    if steps and base_steps and steps < base_steps:
        parts.append(f"{steps:,} optimizer steps instead of {base_steps:,}")
    if last_improvement(row, metric) is not None:
        parts.append(f"still {'falling' if is_loss(metric) else 'rising'} in the last epoch")
    return f" ({', '.join(parts)})" if parts else ""


def last_improvement(row: Row, metric: str) -> Estimate | None:
    """By how much an accuracy rose, or a loss fell, in the last epoch of a trial's runs.

    None if it did not in each run and beyond chance, or where early stopping chose the epoch.
    """
    sign = -1 if is_loss(metric) else 1
    steps = []
    for record in row.counted:
        tested = [value for epoch in record.epochs if (value := epoch.metrics.get(metric)) is not None]
        if len(tested) > 1 and "best_epoch" not in record.metrics:
            steps.append(sign * (tested[-1] - tested[-2]))
    if not steps or min(steps) <= 0:
        return None
    gain = estimate(steps, resolution=resolution_of(metric, row.counted))
    return None if gain.low is not None and gain.low <= 0 else gain


_PHRASES = {
    "epochs": ("{} epoch{}", True),
    "lr": ("lr {}", True),
    "global_batch": ("global_batch {}", False),
    "steps": ("{} optimizer step{}", False),
}
"""What makes the effort -> how it is written, and whether it is written where all trials have the same."""


def _effort(record: RunRecord) -> Iterator[tuple[str, float]]:
    factors = factors_of(record)
    values: dict[str, Any] = {
        "epochs": factors.get("epochs"),
        "lr": record.metrics.get("scaled_lr", factors.get("lr")),
        "global_batch": factors.get("global_batch"),
        "steps": record.metrics.get("steps"),
    }
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value
