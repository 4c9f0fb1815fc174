"""`Comparisons`: how the trials of a table compare, the same in its cells, its summary, its figures and advice."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import is_time, limit_of, resolution_of
from dmls_ray.analysis.stats.block_model import BlockModel, Contrast
from dmls_ray.analysis.stats.looks import Looks

if TYPE_CHECKING:
    from dmls_ray.analysis.trials.trial import Trial

RUNS_PER_S = "runs_per_s"
"""Name of the rate of runs, by which trials without a throughput are compared."""
TIME_TO_TARGET = "target_s"
"""Name of the time to a target accuracy."""


def speed_metric(*trials: Trial) -> str:
    """The metric of the speed of some trials: their throughput if all have the same, else runs per second."""
    names = {trial.throughput if trial.by_block(trial.throughput) else RUNS_PER_S for trial in trials}
    return names.pop() if len(names) == 1 else RUNS_PER_S


class Comparisons:
    """Comparisons of the trials of one table, with intervals of 95% for all pairs and measures of its answer together.

    Only values of one block with the same versions are compared; times only of the same machine and device, too.

    Args:
        trials: all trials of the table.
        looks: how the number of blocks came about.
        measures: by how many measures the answer judges.
    """

    def __init__(self, trials: Sequence[Trial], *, looks: Looks = "none", measures: int = 1) -> None:
        self._trials = {trial.trial_id: trial for trial in trials}
        self._looks: Looks = looks
        self._measures = max(measures, 1)
        self._models: dict[tuple[str, bool], BlockModel] = {}

    def against(self, trial: Trial, base: Trial, metric: str, *, is_ratio: bool) -> Contrast | None:
        """A metric of a trial, or `RUNS_PER_S`, against that of a baseline; None without a block that has both."""
        return self.model(metric, is_ratio=is_ratio).against(trial.trial_id, base.trial_id)

    def within(self, trial: Trial, metric: str, base: str, *, is_ratio: bool) -> Contrast | None:
        """A metric of a trial against another one of the same runs: their ratio or difference; None without a run."""
        compared = [item for item in self._trials.values() if item.estimates.keys() >= {metric, base}]
        model = BlockModel(
            {name: trial.by_block(name) for name in (metric, base)},
            is_ratio=is_ratio,
            resolution=resolution_of(metric, trial.counted),
            looks=self._looks,
            limit=limit_of(metric),
            once=(metric, base) if trial.is_once(metric) else (),
            families=self._measures * max(len(compared), 1),
        )
        return model.against(metric, base)

    def mean(self, pairs: Sequence[tuple[Trial, Trial]], metric: str, *, is_ratio: bool) -> Contrast | None:
        """The mean of the comparisons of several pairs of trials, of each the first against the second.

        Args:
            pairs: the trials.
            metric: a metric, or `RUNS_PER_S`.
            is_ratio: whether they are compared by ratios, whose mean is the geometric one.

        Returns:
            None without a block that has all of them.
        """
        weights: dict[str, float] = {}
        model = self.model(metric, is_ratio=is_ratio)
        widths = []
        for trial, base in pairs:
            weights[trial.trial_id] = weights.get(trial.trial_id, 0.0) + 1 / len(pairs)
            weights[base.trial_id] = weights.get(base.trial_id, 0.0) - 1 / len(pairs)
            contrast = model.against(trial.trial_id, base.trial_id)
            if contrast is not None and contrast.half_width is not None:
                widths.append(contrast.half_width)
        mean = model.combined(weights)
        if mean is None or len(widths) < len(pairs):
            return mean
        # Where the intervals of all pairs hold, the mean lies within the mean of these.
        return mean.narrowed(sum(widths) / len(widths), is_ratio=is_ratio)

    def model(self, metric: str, *, is_ratio: bool) -> BlockModel:
        """The model of a metric of all trials, or of `RUNS_PER_S`; where ratios are taken, of values above 0."""
        if (metric, is_ratio) not in self._models:
            samples: dict[str, dict[int, float]] = {}
            for trial in self._trials.values():
                values = trial.by_block(metric)
                if values:
                    samples[trial.trial_id] = {
                        block: value for block, value in values.items() if value > 0 or not is_ratio
                    }
            self._models[metric, is_ratio] = self.model_of(samples, metric, is_ratio=is_ratio)
        return self._models[metric, is_ratio]

    def model_of(
        self, samples: Mapping[str, Mapping[int, float]], metric: str, *, is_ratio: bool, looks: Looks | None = None
    ) -> BlockModel:
        """The model of some values of these trials.

        Args:
            samples: trial_id -> block -> value.
            metric: the metric that the values are, or follow from.
            is_ratio: trials are compared by ratios rather than differences.
            looks: how the number of blocks came about, if otherwise than for all comparisons.
        """
        trials = [self._trials[trial_id] for trial_id in samples]
        is_timed = metric in (RUNS_PER_S, TIME_TO_TARGET) or is_time(metric)
        records = []
        measured: list[float] = []
        values: dict[str, dict[Hashable, float]] = {}
        for trial in trials:
            records += trial.counted
            measured += trial.by_block(metric).values()
            values[trial.trial_id] = _by_environment(trial, samples[trial.trial_id], is_timed=is_timed)
        return BlockModel(
            values,
            is_ratio=is_ratio,
            resolution=resolution_of(metric, records),
            is_exact=metric in EXACT,
            looks=looks or self._looks,
            limit=limit_of(metric, measured),
            once=[trial.trial_id for trial in trials if trial.is_once(metric)],
            families=self._measures,
        )


def _by_environment(trial: Trial, values: Mapping[int, float], *, is_timed: bool) -> dict[Hashable, float]:
    """Values with block and environment as their key, so that a model pairs only what may be compared."""
    found: dict[Hashable, float] = {}
    for block, value in values.items():
        if block in trial.environments:
            software, hardware = trial.environments[block]
            found[block, software, hardware if is_timed else ()] = value
    return found
