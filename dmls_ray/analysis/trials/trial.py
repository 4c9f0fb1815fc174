"""`Trial`: one configuration of a sweep with its metrics. `Comparisons`: how the trials of a table compare."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dmls_ray.analysis import metrics
from dmls_ray.analysis.results import field_names
from dmls_ray.analysis.stats.block_model import BlockModel, Contrast
from dmls_ray.analysis.stats.formatting import format_interval, format_value
from dmls_ray.analysis.stats.intervals import Estimate, are_same, estimate
from dmls_ray.analysis.stats.learning import overfit_epoch
from dmls_ray.analysis.stats.looks import Looks
from dmls_ray.analysis.trials.run_lengths import STEP_MS
from dmls_ray.config.grid import BASELINE
from dmls_ray.records.metrics import LEARNED, is_loss
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome, outcome_counts
from dmls_ray.records.provenance import hardware_key, software_facts
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import is_compared, registered_metrics, workload_of

RUNS_PER_S = "runs_per_s"
"""Name of the rate of runs, by which trials without a throughput are compared."""
TIME_TO_TARGET = "target_s"
"""Name of the time to a target accuracy."""
STEPS_PER_S = "steps_per_s"
"""Name of the rate of steps, by which trials are compared whose steps are known to have the same samples."""


class Comparisons:
    """Comparisons of the trials of one table, with intervals of 95% for all pairs and measures of its answer together.

    Only values of one block with the same versions are compared; what drifts, as times do, only of the same session,
    lane, machine and device, too.

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
            resolution=metrics.resolution_of(metric, trial.counted),
            is_exact=metrics.is_exact(metric),
            looks=self._looks,
            limit=metrics.limit_of(metric),
            once=(metric, base) if trial.is_once(metric) else (),
            families=self._measures * max(len(compared), 1),
        )
        return model.against(metric, base)

    def mean(self, pairs: Sequence[tuple[Trial, Trial]], metric: str, *, is_ratio: bool) -> Contrast | None:
        """The mean of the comparisons of several pairs of trials, of each the first against the second.

        Of ratios the geometric one. None without a block that has all of them.
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
                by_block = trial.by_block(metric)
                if by_block:
                    values = {block: value for block, value in by_block.items() if value > 0 or not is_ratio}
                    samples[trial.trial_id] = values
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
        is_drifting = metric in (RUNS_PER_S, STEPS_PER_S, TIME_TO_TARGET) or metrics.drifts(metric)
        records = []
        measured: list[float] = []
        values: dict[str, dict[Hashable, float]] = {}
        for trial in trials:
            records += trial.counted
            measured += trial.by_block(metric).values()
            values[trial.trial_id] = _by_environment(trial, samples[trial.trial_id], is_drifting=is_drifting)
        return BlockModel(
            values,
            is_ratio=is_ratio,
            resolution=metrics.resolution_of(metric, records),
            is_exact=metrics.is_exact(metric),
            looks=looks or self._looks,
            limit=metrics.limit_of(metric, measured),
            once=[trial.trial_id for trial in trials if trial.is_once(metric)],
            families=self._measures,
        )


def _by_environment(trial: Trial, values: Mapping[int, float], *, is_drifting: bool) -> dict[Hashable, float]:
    """Values with block and environment as their key, so that a model pairs only what may be compared."""
    found: dict[Hashable, float] = {}
    for block, value in values.items():
        if block in trial.environments:
            software, place = trial.environments[block]
            key = (block, software, place) if is_drifting else (block, software)
            found[key] = value
    return found


@dataclass
class Trial:
    """One configuration: its varied fields, its metrics over the repeats, and the outcomes of its runs."""

    trial_id: str
    factors: dict[str, Any]
    """The fields that vary in this table."""
    records: list[RunRecord]
    speed_up: Contrast | None = None
    """Against the trial that the presentation of the workload chooses: world size 1 without DDP, all else equal."""
    given: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Field -> the values of the sweep, in the order in which they were given."""

    @cached_property
    def comparisons(self) -> Comparisons:
        """How it compares with the other trials of its table, which sets this; alone, with none."""
        return Comparisons([self])

    @property
    def workload(self) -> Workload:
        """The workload of its runs."""
        return workload_of(self.records[0].config)

    @property
    def world_size(self) -> int:
        return int(self.records[0].config.get("world_size", 1))

    def position(self, names: Sequence[str]) -> list[tuple[bool, bool, Any]]:
        """The place of the trial in an order by some fields, as a sort key.

        Trials without a value come first. Numbers are in order of size, choices in the order of their field, which
        begins with the default.
        """
        specs = self.workload.specs()
        places: list[tuple[bool, bool, Any]] = []
        for name in names:
            value = self.factors.get(name)
            if name in specs and value in specs[name].choices:
                value = specs[name].choices.index(value)
            is_number = isinstance(value, int | float)
            places.append((value is not None, not is_number, value if is_number else str(value)))
        return places

    @cached_property
    def outcome(self) -> str:
        """The outcome that all runs have, or `stopped`, or the number of runs of each outcome."""
        endings = [record.ending for record in self.records]
        if len({*endings}) == 1:
            return endings[0]
        return outcome_counts(endings)

    @property
    def is_stopped(self) -> bool:
        """Whether a search stopped all runs that count: their metrics are those of an early epoch."""
        return bool(self.counted) and all(record.is_stopped for record in self.counted)

    @property
    def independent_ranks(self) -> str:
        """Why the ranks of a run did not train one model together; empty if all did, or where that is unknown."""
        for record in self.counted:
            if record.independent_ranks:
                return record.independent_ranks
        return ""

    @cached_property
    def counted(self) -> list[RunRecord]:
        """Runs that ended ok; if any trained to the end, only those."""
        ok = [record for record in self.records if record.outcome is Outcome.OK]
        return [record for record in ok if not record.is_stopped] or ok

    @property
    def timed(self) -> list[RunRecord]:
        """Counted runs in bench mode, whose times are comparable."""
        return [record for record in self.counted if record.mode == "bench"]

    @cached_property
    def environments(self) -> dict[int, tuple[Hashable, Hashable]]:
        """Block -> versions and commit of its counted run; and its session, lane, machine and device. A device that
        the configuration names does not count.
        """
        environments: dict[int, tuple[Hashable, Hashable]] = {}
        for record in self.counted:
            device = ""
            if record.config.get("device", "auto") == "auto":
                device = record.device
            software = tuple(sorted(software_facts(record.versions, record.git).items()))
            place = (*hardware_key(record.machine), device, record.lane, record.session)
            environments[record.repeat] = software, place
        return environments

    def common_blocks(self, base: Trial) -> set[int]:
        """The blocks in which the times of this trial and of another one may be compared."""
        return {block for block, _ in self.environments.items() & base.environments.items()}

    @cached_property
    def same_results(self) -> list[str]:
        """The losses of its runs, if they are the same in each, though their seeds differ: the repeats repeat one run.

        A loss of 0, or of another whole number, proves nothing.
        """
        if len({record.seed for record in self.counted}) < 2:
            return []
        same = []
        for name, first in self.counted[0].metrics.items():
            if is_loss(name) and (name in LEARNED or is_compared(name)) and not float(first).is_integer():
                values = self.by_block(name).values()
                if len(values) < len(self.counted) or not are_same([*values]):
                    return []
                same.append(name)
        return same

    def is_once(self, metric: str) -> bool:
        """Whether equal values of a metric say no more than one of them.

        So it is with every metric without an entry, and with what was learned, where the losses are the same or
        steps of the values are not known: of an accuracy on n samples, equal values say that its spread is below 1/n.
        """
        if metric in LEARNED:
            return bool(self.same_results) or not metrics.resolution_of(metric, self.counted)
        return metric not in registered_metrics() and any(metric in record.metrics for record in self.counted)

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Its metrics over the repeats, in the order of tables."""
        reported = field_names(record.metrics for record in self.counted)
        without_entry = [name for name in reported if name not in registered_metrics()]
        found = {}
        for name in (*metrics.table_metrics(), *without_entry):
            values = list(self.by_block(name).values())
            if values:
                quantity, resolution = metrics.quantity_of(name, values), metrics.resolution_of(name, self.counted)
                found[name] = estimate(values, quantity, resolution=resolution, is_once=self.is_once(name))
        return found

    @property
    def throughput(self) -> str:
        """The metric that says how fast its runs go: the first of its workload's that a run reports."""
        names = self.workload.throughput
        for name in names:
            if any(name in record.metrics for record in self.counted):
                return name
        return names[0]

    def by_block(self, metric: str) -> dict[int, float]:
        """A metric of each block, of the counted runs; a time only of runs in bench mode."""
        if metric == STEPS_PER_S:
            return {block: 1e3 / value for block, value in self.by_block(STEP_MS).items() if value > 0}
        if metric == RUNS_PER_S:
            seconds = self.by_block("total_s") if self.workload.durations_compare else {}
            return {block: 1 / value for block, value in seconds.items() if value > 0}
        records = self.timed if metrics.is_time(metric) else self.counted
        return {record.repeat: record.metrics[metric] for record in records if metric in record.metrics}

    def rates(self) -> dict[int, float]:
        """The throughput of each block; without it, runs per second, if all runs do the same work."""
        return self.by_block(self.throughput) or self.by_block(RUNS_PER_S)

    def value_of(self, metric: str) -> float | None:
        """The mean of a metric; None if no run reports it."""
        value = self.estimates.get(metric)
        return None if value is None else value.centre

    def text(self, metric: str, *, interval: bool = False) -> str:
        """A metric as tables write it, with its interval or without; empty if no run reports it."""
        write = format_interval if interval else format_value
        return write(self.estimates.get(metric), metrics.format_of(metric))

    @cached_property
    def overfit_epoch(self) -> int | None:
        """The epoch from which its runs overfit; None if they do not beyond chance."""
        return overfit_epoch(self.counted)


def describe_configuration(factors: Mapping[str, Any]) -> str:
    """A configuration by the fields that vary: `world_size=2 batch_per_rank=16`; its batch once."""
    texts = []
    for name, value in factors.items():
        is_derived = name == "global_batch" and factors.get("batch_per_rank") is not None
        if value is not None and not is_derived:
            texts.append(f"{name}={value:.10g}" if isinstance(value, float) else f"{name}={value}")
    return " ".join(texts) or "the one configuration"


def describe_changes(trial: Trial, changed: Collection[str]) -> str:
    """What a trial changes of the fields that were changed one at a time: `dropout=0.3`; empty where nothing."""
    specs = trial.workload.specs()
    texts = []
    for name, value in trial.factors.items():
        # A field of the user's program has no default here: a trial that does not change it has no value of it.
        default = specs[name].default if name in specs else None
        if name in changed and value != default:
            texts.append(f"{name}={value}")
    return " ".join(texts)


def name_of_change(trial: Trial, changed: Collection[str]) -> str:
    """The name of a trial by what it changes: `dropout=0.3`; `baseline` where nothing."""
    return describe_changes(trial, changed) or BASELINE
