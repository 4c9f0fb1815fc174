"""`Trial`: one configuration of a sweep, with its metrics over the repeats, and how it is named by its fields."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dmls_ray.analysis.metrics import format_of, is_time, quantity_of, resolution_of, table_metrics
from dmls_ray.analysis.results import field_names
from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.stats.formatting import format_interval, format_value
from dmls_ray.analysis.stats.intervals import Estimate, are_same, estimate
from dmls_ray.analysis.stats.learning import overfit_epoch
from dmls_ray.analysis.trials.compare import RUNS_PER_S, Comparisons, speed_metric
from dmls_ray.config.grid import BASELINE
from dmls_ray.records.metrics import LEARNED, is_loss
from dmls_ray.records.model import OF_A_FIELD, RunRecord, distinct_names
from dmls_ray.records.outcome import Outcome, outcome_counts
from dmls_ray.records.provenance import hardware_key, software_facts
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import is_compared, registered_metrics, workload_of


@dataclass
class Trial:
    """One configuration: its varied fields, its metrics over the repeats, and the outcomes of its runs."""

    trial_id: str
    factors: dict[str, Any]
    """The fields that vary in this table."""
    records: list[RunRecord]
    speed_up: Contrast | None = None
    """Against the trial that the presentation of the workload chooses: world size 1 without DDP, all else equal."""

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
    def outcomes(self) -> set[str]:
        """How its runs ended: their outcomes, and `stopped`."""
        return {record.ending for record in self.records}

    @cached_property
    def outcome(self) -> str:
        """The outcome that all runs have, or the number of runs of each outcome."""
        if len(self.outcomes) == 1:
            return self.records[0].ending
        return outcome_counts(record.ending for record in self.records)

    @property
    def is_stopped(self) -> bool:
        """Whether a search stopped all runs that count: their metrics are those of an early epoch."""
        return bool(self.counted) and all(record.is_stopped for record in self.counted)

    @property
    def independent_ranks(self) -> str:
        """Why the ranks of a run did not train one model together; empty if all did, or where that is unknown."""
        return next((record.independent_ranks for record in self.counted if record.independent_ranks), "")

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
        """Block -> versions and commit of its counted run, and machine and device; a device that the configuration
        names does not count.
        """
        environments: dict[int, tuple[Hashable, Hashable]] = {}
        for record in self.counted:
            device = record.device if record.config.get("device", "auto") == "auto" else ""
            software = tuple(sorted(software_facts(record.versions, record.git).items()))
            environments[record.repeat] = software, (*hardware_key(record.machine), device)
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
            return any(map(is_loss, self.same_results)) or not resolution_of(metric, self.counted)
        return metric not in registered_metrics() and any(metric in record.metrics for record in self.counted)

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Its metrics over the repeats, in the order of tables."""
        reported = field_names(record.metrics for record in self.counted)
        without_entry = [name for name in reported if name not in registered_metrics()]
        found = {}
        for name in (*table_metrics(), *without_entry):
            values = list(self.by_block(name).values())
            if values:
                quantity = quantity_of(name, values)
                resolution = resolution_of(name, self.counted)
                found[name] = estimate(values, quantity, resolution=resolution, is_once=self.is_once(name))
        return found

    @property
    def throughput(self) -> str:
        """The metric that says how fast its runs go."""
        return self.workload.throughput or "images_per_s"

    def by_block(self, metric: str) -> dict[int, float]:
        """A metric of each block, of the counted runs; a time only of runs in bench mode."""
        if metric == RUNS_PER_S:
            seconds = self.by_block("total_s") if self.workload.durations_compare else {}
            return {block: 1 / value for block, value in seconds.items() if value > 0}
        records = self.timed if is_time(metric) else self.counted
        return {record.repeat: record.metrics[metric] for record in records if metric in record.metrics}

    def rates(self) -> dict[int, float]:
        """The throughput of each block; without it, runs per second, if all runs do the same work."""
        return self.by_block(self.throughput) or self.by_block(RUNS_PER_S)

    def speed_against(self, base: Trial) -> Contrast | None:
        """The ratio of the speed of this trial to that of a baseline of the same table.

        By the throughput of their workload where both have it, else by runs per second: a rate is not compared with a
        duration. None if no block has a speed of both in one environment.
        """
        return self.comparisons.against(self, base, speed_metric(self, base), is_ratio=True)

    def value_of(self, metric: str) -> float | None:
        """The mean of a metric; None if no run reports it."""
        value = self.estimates.get(metric)
        return None if value is None else value.centre

    def text(self, metric: str, *, interval: bool = False) -> str:
        """A metric as tables write it, with its interval or without; empty if no run reports it."""
        write = format_interval if interval else format_value
        return write(self.estimates.get(metric), format_of(metric))

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
        if name in changed and value != specs[name].default:
            texts.append(f"{name}={value}")
    return " ".join(texts)


def name_of_change(trial: Trial, changed: Collection[str]) -> str:
    """The name of a trial by what it changes: `dropout=0.3`; `baseline` where nothing."""
    return describe_changes(trial, changed) or BASELINE


def factor_cells(factors: Mapping[str, Any], *, other_headers: Collection[str]) -> dict[str, str]:
    """Fields of a configuration as the cells of a trial.

    Args:
        factors: name -> value.
        other_headers: headers of the row's other cells; a field with the name of one gets the prefix `config_`.
    """
    heads = distinct_names(factors, other_headers, OF_A_FIELD)
    return {head: "" if factors[name] is None else str(factors[name]) for name, head in heads.items()}
