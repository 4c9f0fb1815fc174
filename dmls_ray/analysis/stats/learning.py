"""What the epochs of a trial's runs say: time and steps to a target accuracy, and overfitting.

Runs that have not reached the target are right-censored.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from dmls_ray.analysis.stats.formatting import NumberFormat, format_interval
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Interval, estimate, is_above
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome

MIN_CENSORED = 5
"""Fewer runs with a censored one among them have no interval: it would contain the true value less often than 95%."""

_ROUNDING = 1e-9
"""Survival is a product, so a half may be off by rounding: 0.5000000000000001 with 24 runs."""


@dataclass(frozen=True)
class TimeToTarget:
    """Median time, or number of optimizer steps, to a test accuracy, as an interval that may have no centre.

    If all runs reached it, the geometric mean, which is the median of log-normal times; else by Kaplan and Meier (JASA
    53, 1958).
    """

    target: float
    n: int
    """Runs that were observed."""
    reached: int
    """Runs that reached the target."""
    centre: float | None
    """Seconds from assignment, set-up and tests included, or steps; None if fewer than half of the runs reached the
    target."""
    low: float | None
    """Lower end of the 95% interval (with censored runs: Brookmeyer & Crowley, Biometrics 38, 1982, on log-log
    survival); None with too few runs, or if the interval has no lower end."""
    high: float | None
    """Upper end; None as for `low`."""

    def describe(self, form: NumberFormat) -> str:
        """The median with its interval, and the number of runs that reached the target if not all did."""
        if self.centre is None:
            text = "not yet"
        elif self.low is None and self.high is None:
            text = form(self.centre)
        else:
            high = math.inf if self.high is None else self.high
            text = format_interval(Interval(self.centre, self.low or 0.0, high), form)
        if self.reached < self.n:
            text += f" ({self.reached} of {self.n})"
        return text


def time_to_target(records: Sequence[RunRecord], target: float | None = None) -> TimeToTarget | None:
    """Return the time that runs of one trial take to a test accuracy; None without a target or an observed run.

    A run that was cut short is censored at its end. A run that used up its epochs without reaching the target,
    diverged, or did not fit into memory never reaches it, so it is censored at the longest time of any run. A run that
    ended ok without a test accuracy per epoch does not count: when it reached the target is unknown.

    Args:
        records: the runs; skipped runs and those of a search do not count.
        target: from 0 to 1; without it, target_accuracy of the runs, if they have one in common.
    """
    observed = _observed(records)
    if target is None:
        targets = {record.config.get("target_accuracy") for record in observed} - {None}
        if len(targets) == 1:
            (target,) = targets
    if target is None or not observed:
        return None
    times = [_seconds_to(record, target) for record in observed]
    return _to_target(target, observed, times, "total_s")


def steps_to_target(records: Sequence[RunRecord]) -> TimeToTarget | None:
    """Return the optimizer steps that runs of one trial take to their target; as `time_to_target`.

    None as well if a run reached the target after a number of steps that is not known.
    """
    time = time_to_target(records)
    if time is None:
        return None
    observed = _observed(records)
    steps = [record.metrics.get("target_steps") for record in observed]
    if len(steps) - steps.count(None) < time.reached:
        return None
    return _to_target(time.target, observed, steps, "steps")


def _observed(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs that say when they reached the target, or that they did not."""
    observed = []
    for record in records:
        has_accuracies = any(epoch.metrics.keys() >= {"test_accuracy", "ended_s"} for epoch in record.epochs)
        is_silent = record.outcome is Outcome.OK and "target_s" not in record.metrics and not has_accuracies
        if record.mode == "bench" and record.outcome is not Outcome.SKIPPED and not is_silent:
            observed.append(record)
    return observed


def _to_target(
    target: float, observed: Sequence[RunRecord], values: Sequence[float | None], lasted: str
) -> TimeToTarget:
    """Return the median of the times or steps to a target.

    Args:
        target: the test accuracy.
        observed: the runs.
        values: of each; None where it did not reach the target.
        lasted: the metric that says how long a run lasted.
    """
    lengths = [record.metrics.get(lasted, 0.0) for record in observed]
    reached = [value for value in values if value is not None]
    longest = max([*reached, *lengths])
    censored = []
    for record, value, length in zip(observed, values, lengths, strict=True):
        if value is None:
            censored.append(length if record.outcome.is_cut_short() else longest)
    return TimeToTarget(target, len(observed), len(reached), *_median_and_interval(reached, censored))


def _seconds_to(record: RunRecord, target: float) -> float | None:
    """Seconds from assignment to the end of the first epoch that reached the target."""
    if record.config.get("target_accuracy") == target and "target_s" in record.metrics:
        return record.metrics["target_s"]
    for epoch in record.epochs:
        if epoch.metrics.get("test_accuracy", -1.0) >= target:
            return epoch.metrics.get("ended_s")
    return None


def _median_and_interval(
    reached: Sequence[float], censored: Sequence[float]
) -> tuple[float | None, float | None, float | None]:
    """Return the median of the times and the ends of its interval, in seconds."""
    count = len(reached) + len(censored)
    if not censored:
        times = estimate(reached, "amount")
        return times.centre, times.low, times.high
    if 2 * len(reached) < count:
        # Early censoring can bring the estimate below a half although fewer than half of the runs reached the target.
        return None, None, None
    from scipy.stats import CensoredData, ecdf  # takes half a second to load

    survival = ecdf(CensoredData(uncensored=reached, right=censored)).sf
    median = _first(survival.quantiles, survival.probabilities)
    if count < MIN_CENSORED:
        return median, None, None
    with warnings.catch_warnings():
        # The formula is undefined where all runs or none are left; no end is reported there.
        warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
        interval = survival.confidence_interval(0.95, method="log-log")
    # The lower bound of the survival function crosses a half first, so it gives the lower end of the median.
    low = _first(interval.low.quantiles, interval.low.probabilities)
    return median, low, _first(interval.high.quantiles, interval.high.probabilities)


def _first(times: np.ndarray, survival: np.ndarray) -> float | None:
    """Return the first time at which the survival is a half or less."""
    below = times[survival <= 0.5 + _ROUNDING]
    return float(below[0]) if below.size else None


_LEVEL_OF_RISE = 0.975
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
    epochs = sorted(set.intersection(*[set(run) for run in runs]))
    if len(epochs) < 2:
        return None
    losses_of_runs = np.array([itemgetter(*epochs)(run) for run in runs])
    if not np.isfinite(losses_of_runs).all():
        return None
    train, test = losses_of_runs[:, :, 0], losses_of_runs[:, :, 1]
    total = test.sum(axis=0)
    rises = [float(losses[-1] - losses[np.argmin(total - losses)]) for losses in test]
    best = int(np.argmin(total))
    still_falls = train[:, -1].mean() < train[:, best].mean()
    is_rise = is_above(estimate(rises, level=_LEVEL_OF_RISE), 0) and not math.isclose(total[-1], total[best])
    if is_rise and still_falls:
        return epochs[best] + 1
    return None


def _losses_of(record: RunRecord) -> dict[int, tuple[float, float]]:
    """The train and test losses of each epoch that has both."""
    losses = {}
    for item in record.epochs:
        if item.metrics.keys() >= {"train_loss", "test_loss"}:
            losses[item.epoch] = (item.metrics["train_loss"], item.metrics["test_loss"])
    return losses
