"""How much training went into the accuracies that a sentence compares: epochs, learning rate, batch and steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dmls_ray.analysis.metrics import resolution_of
from dmls_ray.analysis.results import factors_of
from dmls_ray.analysis.stats.intervals import Estimate, estimate
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.records.model import RunRecord
from dmls_ray.records.training_metrics import is_loss


def describe_effort(rows: Sequence[Row]) -> str:
    """`5 epochs, lr 0.001, global_batch 16 to 128, 60 to 450 optimizer steps`; empty where nothing is known.

    Accuracies follow from these. What is equal at all trials and follows from the rest, as the number of steps, is left
    out.
    """
    by_name: dict[str, list[float]] = {}
    for row in rows:
        values = dict(_effort(row.counted[0])) if row.counted else {}
        for name, value in values.items():
            by_name.setdefault(name, []).append(value)
    parts = []
    for name, (phrase, is_always_named) in _PHRASES.items():
        found = by_name.get(name, [])
        if not found or (len(set(found)) == 1 and not is_always_named):
            continue
        text = " to ".join(dict.fromkeys(f"{end:,.10g}" for end in (min(found), max(found))))
        parts.append(phrase.format(text, "" if text == "1" else "s"))
    return ", ".join(parts)


def last_improvement(row: Row, metric: str) -> Estimate | None:
    """By how much an accuracy rose, or a loss fell, in the last epoch of a trial's runs.

    None if it did not in each run and beyond chance, or where early stopping chose the epoch.
    """
    sign = -1 if is_loss(metric) else 1
    steps = []
    for record in row.counted:
        tested = [value for epoch in record.epochs if (value := getattr(epoch, metric, None)) is not None]
        if len(tested) > 1 and record.best_epoch is None:
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
        "lr": factors.get("lr") if record.scaled_lr is None else record.scaled_lr,
        "global_batch": factors.get("global_batch"),
        "steps": record.steps,
    }
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value
