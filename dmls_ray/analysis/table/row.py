"""`Row`: one trial of a sweep, with its metrics over the repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dmls_ray.analysis.metrics import format_of, is_time, resolution_of
from dmls_ray.analysis.stats.formatting import format_interval, format_value
from dmls_ray.analysis.stats.intervals import Estimate, compare, difference
from dmls_ray.analysis.stats.overfitting import overfit_epoch
from dmls_ray.analysis.stats.time_to_target import TimeToTarget, time_to_target
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome, outcome_counts
from dmls_ray.records.provenance import hardware_key, software_facts
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import workload_of


@dataclass
class Row:
    """One trial: its varied fields, its metrics over the repeats, and the outcomes of its runs."""

    trial_id: str
    factors: dict[str, Any]
    """The fields that vary in this table."""
    records: list[RunRecord]
    estimates: dict[str, Estimate] = field(default_factory=dict)
    custom_metrics: dict[str, Estimate] = field(default_factory=dict)
    """Metrics that are no field of a record."""
    speed_up: Estimate | None = None
    """Against the row that the presentation of the workload chooses: world size 1 without DDP, all else equal."""

    @property
    def workload(self) -> Workload:
        """The workload of its runs."""
        return workload_of(self.records[0].config)

    @property
    def world_size(self) -> int:
        return int(self.records[0].config.get("world_size", 1))

    def position(self, names: Sequence[str]) -> tuple[tuple[int, Any], ...]:
        """The place of the row in an order by some fields, as a sort key.

        Rows without a value come first. Numbers are in order of size, choices in the order of their field, which begins
        with the default.
        """
        specs = self.workload.specs()
        places: list[tuple[int, Any]] = []
        for name in names:
            value = self.factors.get(name)
            choices = specs[name].choices if name in specs else ()
            if value is None:
                places.append((0, 0))
            elif value in choices:
                places.append((1, choices.index(value)))
            else:
                places.append((1, value) if isinstance(value, int | float) else (2, str(value)))
        return tuple(places)

    @cached_property
    def outcomes(self) -> set[str]:
        """How its runs ended: their outcomes, and `stopped`."""
        return {record.ending for record in self.records}

    @cached_property
    def outcome(self) -> str:
        """The outcome that all runs have, or the number of runs of each outcome."""
        one_for_all = len(self.outcomes) == 1
        return self.records[0].ending if one_for_all else outcome_counts(record.ending for record in self.records)

    @property
    def is_stopped(self) -> bool:
        """Whether a search stopped all runs that count: their metrics are those of an early epoch."""
        return bool(self.counted) and all(record.stopped_epoch is not None for record in self.counted)

    @property
    def reason(self) -> str:
        """The reason of the first run that is not ok; empty if all are."""
        return next((record.reason for record in self.records if record.outcome is not Outcome.OK), "")

    @property
    def independent_ranks(self) -> str:
        """Why the ranks of a run did not train one model together; empty if all did, or where that is unknown."""
        return next((record.independent_ranks for record in self.counted if record.independent_ranks), "")

    @cached_property
    def counted(self) -> list[RunRecord]:
        """Runs that ended ok; if any trained to the end, only those."""
        ok = [record for record in self.records if record.outcome is Outcome.OK]
        return [record for record in ok if record.stopped_epoch is None] or ok

    @property
    def timed(self) -> list[RunRecord]:
        """Counted runs in bench mode, whose times are comparable."""
        return [record for record in self.counted if record.mode == "bench"]

    def rates(self) -> dict[int, float]:
        """images_per_s of each block; without it, runs per second, if all runs do the same work."""
        return self.by_block("images_per_s") or self._runs_per_s()

    def speed_against(self, base: Row, *, level: float = 0.95) -> Estimate | None:
        """The ratio of the speed of this trial to that of a baseline, paired by block.

        Only blocks in which both ran in the same environment count.

        Args:
            base: the baseline.
            level: confidence level of the interval.

        Returns:
            None if no such block has a rate of both.
        """
        rates, baseline_rates = self.by_block("images_per_s"), base.by_block("images_per_s")
        if not (rates and baseline_rates):
            # A rate is not compared with a duration: fall back to runs per second for both.
            rates, baseline_rates = self._runs_per_s(), base._runs_per_s()
        comparable = self.comparable_blocks(base, timed=True)
        paired = {block for block in comparable if rates.get(block, 0) > 0 and baseline_rates.get(block, 0) > 0}
        return compare({block: rates[block] for block in paired}, baseline_rates, level=level)

    def difference_from(self, base: Row, metric: str, *, level: float = 0.95) -> Estimate | None:
        """A metric of this trial minus that of a baseline, paired by block; None without a comparable block."""
        comparable = self.comparable_blocks(base, timed=is_time(metric))
        values = {block: value for block, value in self.by_block(metric).items() if block in comparable}
        resolution = resolution_of(metric, [*self.counted, *base.counted])
        return difference(values, base.by_block(metric), level=level, resolution=resolution)

    def comparable_blocks(self, baseline: Row, *, timed: bool) -> set[int]:
        """The blocks in which both ran with the same versions; for times, on the same machine and device, too."""
        runs, baseline_runs = ({record.repeat: record for record in row.counted} for row in (self, baseline))
        return {
            block
            for block in runs.keys() & baseline_runs.keys()
            if _have_same_software(run := runs[block], base_run := baseline_runs[block])
            and (not timed or _hardware_of(run) == _hardware_of(base_run))
        }

    def _runs_per_s(self) -> dict[int, float]:
        """Runs per second of each block; empty if runs may differ in their work."""
        if not self.workload.durations_compare:
            return {}
        return {block: 1 / seconds for block, seconds in self.by_block("total_s").items() if seconds > 0}

    def estimate(self, metric: str) -> Estimate | None:
        """A metric over the repeats, registered or custom; None if no run reports it."""
        return self.estimates.get(metric) or self.custom_metrics.get(metric)

    def median_of(self, metric: str) -> float | None:
        """The median of a metric; None if no run reports it."""
        value = self.estimate(metric)
        return None if value is None else value.median

    def text(self, metric: str, *, interval: bool = False) -> str:
        """A metric as tables write it, with its interval or without; empty if no run reports it."""
        write = format_interval if interval else format_value
        return write(self.estimate(metric), format_of(metric))

    @cached_property
    def overfit_epoch(self) -> int | None:
        """The epoch from which its runs overfit; None if they do not beyond chance."""
        return overfit_epoch(self.counted)

    def time_to_target(self) -> TimeToTarget | None:
        """When its runs reached their target accuracy; None if they have none."""
        return time_to_target(self.records)

    def by_block(self, metric: str) -> dict[int, float]:
        """A metric of each block, of the counted runs; a time only of runs in bench mode."""
        records = self.timed if is_time(metric) else self.counted
        values = {record.repeat: record.measures.get(metric, getattr(record, metric, None)) for record in records}
        return {repeat: value for repeat, value in values.items() if isinstance(value, int | float)}


def _have_same_software(run: RunRecord, other: RunRecord) -> bool:
    """Whether versions and commit are equal. Records of one session share the objects."""
    if run.versions is other.versions and run.git is other.git:
        return True
    return software_facts(run.versions, run.git) == software_facts(other.versions, other.git)


def _hardware_of(record: RunRecord) -> tuple[str, ...]:
    """The machine and device of a run; a device that the configuration names does not count."""
    device = record.device if record.config.get("device", "auto") == "auto" else ""
    return (*hardware_key(record.machine), device)
