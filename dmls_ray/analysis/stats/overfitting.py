"""Overfitting of a trial: test loss that ends above its minimum by more than chance, while train loss still falls."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dmls_ray.analysis.stats.intervals import MIN_REPEATS, estimate, is_above
from dmls_ray.records.model import RunRecord

_LEVEL = 0.975
"""At this level at most 5% of trials whose test loss stays level are said to overfit, as a simulation in the tests
verifies."""


def overfit_epoch(records: Sequence[RunRecord]) -> int | None:
    """Return the epoch after the least mean test loss; None if the trial does not overfit or has too few repeats.

    The least of many losses is below the last one by chance alone, so a rise from it proves nothing. The rise of each
    run is therefore taken from the epoch at which the mean of the other runs is least, and the interval of the rises
    must lie above 0. Seeds are independent, whatever the losses of one run have in common from epoch to epoch.

    Args:
        records: the runs of the trial that count; their common epochs are compared.
    """
    runs = [_losses_of(record) for record in records]
    if len(runs) < MIN_REPEATS:
        return None
    epochs = sorted(set.intersection(*map(set, runs)))
    if len(epochs) < 2:
        return None
    losses_of_runs = np.array([[run[epoch] for epoch in epochs] for run in runs])
    if not np.isfinite(losses_of_runs).all():
        return None
    train, test = losses_of_runs[:, :, 0], losses_of_runs[:, :, 1]
    total = test.sum(axis=0)
    rises = [float(losses[-1] - losses[np.argmin(total - losses)]) for losses in test]
    best = int(np.argmin(total))
    still_falls = train[:, -1].mean() < train[:, best].mean()
    is_rise = is_above(estimate(rises, level=_LEVEL), 0) and not math.isclose(total[-1], total[best])
    return epochs[best] + 1 if is_rise and still_falls else None


def _losses_of(record: RunRecord) -> dict[int, tuple[float, float]]:
    """The train and test losses of each epoch that has both."""
    losses = {}
    for item in record.epochs:
        if "train_loss" in item.metrics and "test_loss" in item.metrics:
            losses[item.epoch] = (item.metrics["train_loss"], item.metrics["test_loss"])
    return losses
