"""`Comparisons`: how the trials of a table compare, the same in its cells, its summary, its figures and advice."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import is_time, limit_of, resolution_of
from dmls_ray.analysis.stats.block_model import BlockModel, Contrast
from dmls_ray.analysis.stats.looks import Looks
from dmls_ray.records.model import RunRecord
from dmls_ray.records.provenance import hardware_key, software_facts

if TYPE_CHECKING:
    from dmls_ray.analysis.trials.trial import Row

RUNS_PER_S = "runs_per_s"
"""Name of the rate of runs, by which trials without a throughput are compared."""


def speed_metric(*rows: Row) -> str:
    """The metric of the speed of some trials: their throughput if all have the same, else runs per second."""
    names = {row.throughput for row in rows if row.by_block(row.throughput)}
    has_all = len(names) == 1 and all(row.by_block(row.throughput) for row in rows)
    return names.pop() if has_all else RUNS_PER_S


class Comparisons:
    """Comparisons of the trials of one table, with intervals of 95% for all pairs and measures of its answer together.

    Only values of one block with the same versions are compared; times only of the same machine and device, too.

    Args:
        rows: all trials of the table.
        looks: how the number of blocks came about.
        measures: by how many measures the answer judges.
    """

    def __init__(self, rows: Sequence[Row], *, looks: Looks = "none", measures: int = 1) -> None:
        self._rows = {row.trial_id: row for row in rows}
        self._looks: Looks = looks
        self._measures = max(measures, 1)
        self._models: dict[tuple[str, bool], BlockModel] = {}
        self._software: dict[tuple[int, int], Hashable] = {}

    def within(self, row: Row, metric: str, base: str, *, is_ratio: bool) -> Contrast | None:
        """A metric of a trial against another one of the same runs: their ratio or difference; None without a run."""
        values = {name: row.by_block(name) for name in (metric, base)}
        trials = sum(1 for item in self._rows.values() if item.estimate(metric) and item.estimate(base))
        model = BlockModel(
            values,
            is_ratio=is_ratio,
            resolution=resolution_of(metric, row.counted),
            looks=self._looks,
            limit=limit_of(metric),
            once=(metric, base) if row.is_once(metric) else (),
            families=self._measures * max(trials, 1),
        )
        return model.against(metric, base)

    def mean(self, pairs: Sequence[tuple[Row, Row]], metric: str, *, is_ratio: bool) -> Contrast | None:
        """The mean of the comparisons of several pairs of trials, of each the first against the second.

        Args:
            pairs: the trials.
            metric: a metric, or `RUNS_PER_S`.
            is_ratio: whether they are compared by ratios, whose mean is the geometric one.

        Returns:
            None without a block that has all of them.
        """
        weights: dict[str, float] = {}
        model = self._model_of(metric, is_ratio=is_ratio)
        widths = []
        for row, base in pairs:
            weights[row.trial_id] = weights.get(row.trial_id, 0.0) + 1 / len(pairs)
            weights[base.trial_id] = weights.get(base.trial_id, 0.0) - 1 / len(pairs)
            contrast = model.against(row.trial_id, base.trial_id)
            if contrast is not None and contrast.half_width is not None:
                widths.append(contrast.half_width)
        mean = model.combined(weights)
        if mean is None or len(widths) < len(pairs):
            return mean
        # Where the intervals of all pairs hold, the mean lies within the mean of these.
        return mean.narrowed(sum(widths) / len(widths), is_ratio=is_ratio)

    def common_blocks(self, row: Row, base: Row, *, timed: bool) -> set[int]:
        """The blocks in which two trials may be compared; by times, if `timed`."""
        in_row, in_base = (self._by_environment(item, {run.repeat: 0.0 for run in item.counted}, timed)
                           for item in (row, base))  # fmt: skip
        return {block for block, *_ in in_row.keys() & in_base.keys()}

    def model_of(
        self,
        samples: Mapping[str, Mapping[int, float]],
        *,
        timed: bool,
        is_ratio: bool,
        resolution: float = 0.0,
        is_exact: bool = False,
        looks: Looks | None = None,
        limit: float = math.inf,
        once: Sequence[str] = (),
    ) -> BlockModel:
        """The model of some values of these trials.

        Args:
            samples: trial_id -> block -> value.
            timed: whether values of other machines and devices are not compared.
            is_ratio: trials are compared by ratios rather than differences.
            resolution: the smallest step of the values; 0 where they have none.
            is_exact: the value is the same in every repeat.
            looks: how the number of blocks came about, if otherwise than for all comparisons.
            limit: the largest possible difference of two values.
            once: trials whose repeats repeat the same run.
        """
        looks = looks or self._looks
        values = {trial: self._by_environment(self._rows[trial], row, timed) for trial, row in samples.items()}
        return BlockModel(
            values,
            is_ratio=is_ratio,
            resolution=resolution,
            is_exact=is_exact,
            looks=looks,
            limit=limit,
            once=once,
            families=self._measures,
        )

    def against(self, row: Row, base: Row, metric: str, *, is_ratio: bool) -> Contrast | None:
        """A metric of a trial, or `RUNS_PER_S`, against that of a baseline; None without a block that has both."""
        return self._model_of(metric, is_ratio=is_ratio).against(row.trial_id, base.trial_id)

    def _model_of(self, metric: str, *, is_ratio: bool) -> BlockModel:
        if (metric, is_ratio) not in self._models:
            samples: dict[str, dict[int, float]] = {}
            for trial, row in self._rows.items():
                values = row.by_block(metric)
                if values:
                    samples[trial] = {block: value for block, value in values.items() if value > 0 or not is_ratio}
            records = [run for trial in samples for run in self._rows[trial].counted]
            self._models[metric, is_ratio] = self.model_of(
                samples,
                timed=metric == RUNS_PER_S or is_time(metric),
                is_ratio=is_ratio,
                resolution=resolution_of(metric, records),
                is_exact=metric in EXACT,
                limit=limit_of(metric, [value for row in samples.values() for value in row.values()]),
                once=[trial for trial in samples if self._rows[trial].is_once(metric)],
            )
        return self._models[metric, is_ratio]

    def _by_environment(
        self, row: Row, values: Mapping[int, float], timed: bool
    ) -> dict[tuple[int, Hashable, Hashable], float]:
        """Values with block and environment as their key, so that a model pairs only what may be compared."""
        runs = {record.repeat: record for record in row.counted}
        return {
            (block, self._software_of(run), _hardware_of(run) if timed else ()): value
            for block, value in values.items()
            if (run := runs.get(block)) is not None
        }

    def _software_of(self, record: RunRecord) -> Hashable:
        """Versions and commit. Records of one session share the objects, which are compared once."""
        key = (id(record.versions), id(record.git))
        if key not in self._software:
            self._software[key] = tuple(sorted(software_facts(record.versions, record.git).items()))
        return self._software[key]


def _hardware_of(record: RunRecord) -> tuple[str, ...]:
    """The machine and device of a run; a device that the configuration names does not count."""
    device = record.device if record.config.get("device", "auto") == "auto" else ""
    return (*hardware_key(record.machine), device)
