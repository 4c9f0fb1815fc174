"""`SweepTrials`: the trials of a sweep. `Stage`: how far it is. `Questions`: what its workload asks of them."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

from dmls_ray.analysis.findings.effects import Comparison
from dmls_ray.analysis.findings.measures import Measure, judged_measure, measures_of
from dmls_ray.analysis.metrics import is_exact
from dmls_ray.analysis.results import Results, factors_of, field_names
from dmls_ray.analysis.stats.looks import FIRST_LOOK, Looks, next_look
from dmls_ray.analysis.trials.axis import Axis, count_values
from dmls_ray.analysis.trials.batch_rule import with_known_samples
from dmls_ray.analysis.trials.common_metrics import memory_metric
from dmls_ray.analysis.trials.same_step import at_the_same_step
from dmls_ray.analysis.trials.trial import Comparisons, Trial
from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.options import Until
from dmls_ray.records.model import Durations, RunRecord, seconds_of_run
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import DEFAULT, workload


@dataclass(frozen=True)
class Stage:
    """The blocks of a sweep that repeats its trials until its comparisons are decided, and how many more may follow.

    It follows from the records alone, so a sweep that goes on, and whoever reads its folder later, see the same.
    """

    records: Sequence[RunRecord]
    """The runs of the sweep, without those of a search."""
    until: Until
    """Until when trials are repeated."""
    beaten: frozenset[str] = frozenset()
    """Trials that are left out of further blocks."""

    @cached_property
    def blocks_of(self) -> dict[str, int]:
        """Trial -> number of first blocks that have a run of it.

        Of the trials that are repeated: not those that are beaten, nor those without a run that ended ok.
        """
        repeats: dict[str, set[int]] = {}
        for record in self.records:
            repeats.setdefault(record.trial_id, set()).add(record.repeat)
        blocks = {}
        for record in self.records:
            if record.outcome is Outcome.OK and record.trial_id not in self.beaten:
                found = repeats[record.trial_id]
                blocks[record.trial_id] = min({*range(len(found) + 1)} - found)
        return blocks

    @property
    def blocks(self) -> int:
        """Number of first blocks that have a run of every such trial."""
        return min(self.blocks_of.values(), default=0)

    @cached_property
    def block_s(self) -> float:
        """Seconds that a block takes."""
        durations = Durations(self.records)
        return sum(durations.expected_s(trial) or 0.0 for trial in self.blocks_of)

    @cached_property
    def most(self) -> int:
        """Number of blocks that the sweep may have at most, by the number of repeats and the time that are allowed."""
        most, budget = self.until.max_repeats, self.until.budget
        if budget is not None and self.block_s > 0:
            # Lanes measure at the same time.
            spent = dict.fromkeys((record.lane for record in self.records), 0.0)
            for record in self.records:
                if record.repeat >= FIRST_LOOK:
                    spent[record.lane] += seconds_of_run(record)
            further = len(spent) * math.floor(budget / self.block_s)
            left = sum(math.floor(max(budget - seconds, 0.0) / self.block_s) for seconds in spent.values())
            most = min(most, FIRST_LOOK + further, self.blocks + left)
        return max(most, self.blocks)

    def without_those_left_out(self) -> Stage:
        """The stage of the trials that took part in the last blocks: others were beaten in a race before these.

        One block less is no sign of it: the sweep may have been cut short within a block.
        """
        if not self.until.race:
            return self
        last = max(self.blocks_of.values(), default=0)
        return replace(self, beaten=frozenset(trial for trial in self.blocks_of if self.blocks_of[trial] < last - 1))

    @property
    def is_last(self) -> bool:
        """Whether no block may follow."""
        return self.most <= self.blocks

    @property
    def next_blocks(self) -> int:
        """The number of blocks of the next look."""
        return max(FIRST_LOOK, min(next_look(self.blocks), self.most))


class Hooks:
    """What a workload adds to the analysis of its results, by a class that it names.

    Args:
        workload: the workload.
    """

    named_in: ClassVar[str]
    """The attribute of the workload with `module:Class`."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    @classmethod
    def of(cls, workload: Workload) -> Self:
        """Return the hooks of a workload.

        Raises:
            ConfigError: they cannot be loaded.
        """
        path = getattr(workload, cls.named_in)
        where = f"workload {workload.name}: its {cls.named_in} {path}"
        try:
            hooks = pkgutil.resolve_name(path)(workload)
        except Exception as error:
            raise ConfigError(f"{where} cannot be loaded ({type(error).__name__}: {error}); correct it.") from error
        if not isinstance(hooks, cls):
            raise ConfigError(f"{where} does not extend {cls.__module__}.{cls.__name__}; let it.")
        return hooks

    @classmethod
    def of_trials(cls, trials: Sequence[Trial]) -> Self:
        """Return the hooks of the trials' workload; the defaults for trials of several workloads."""
        workloads = {trial.workload.name: trial.workload for trial in trials}
        if len(workloads) == 1:
            return cls.of(*workloads.values())
        return cls(workload(DEFAULT))


class Questions(Hooks):
    """What is asked of the results of a workload. The defaults serve any workload.

    A workload names its subclass in `Workload.questions`; the subclass stands in `analysis/workloads/<name>.py`.
    """

    named_in = "questions"

    duration_set_by: ClassVar[str] = ""
    """Why the duration of a run is no cost: what sets it; empty where a run ends when its work is done."""

    judged_by: tuple[str, bool] | None = None
    """The metric by which alone trials are compared, and whether less of it is better; None for the usual measures."""

    def measures(self, trials: Sequence[Trial]) -> list[Measure]:
        """By what these trials are compared, the most important first."""
        if self.judged_by is not None:
            metric, minimizes = self.judged_by
            return [judged_measure(trials, metric, minimizes=minimizes)]
        return self.usual_measures(trials)

    def usual_measures(self, trials: Sequence[Trial]) -> list[Measure]:
        """By what trials are compared where nothing else is asked, the most important first."""
        return measures_of(trials)

    def judged(self, trials: Sequence[Trial]) -> list[str]:
        """All that an answer may have a verdict on: `measures`, what it compares within runs, and memory.

        They share the errors of the answer. Memory that is the same in every repeat makes none.
        """
        judged = [measure.name for measure in self.measures(trials)]
        memory = memory_metric(trials)
        if memory and not is_exact(memory):
            judged.append(memory)
        return judged

    def comparisons_within_trials(self, trials: SweepTrials) -> list[Comparison]:
        """The comparisons of two values of the same runs: the first rows of the answer, which its headline is about."""
        return []


@dataclass
class SweepTrials:
    """The trials of a sweep, in the order of their fields."""

    varied: tuple[str, ...]
    rows: list[Trial]
    fixed_batch_field: str
    """The field that stays constant where ranks or accum_steps change: `batch_per_rank` or `global_batch`."""
    questions: Questions
    """What the workload adds to the comparisons."""
    axis: str = ""
    """The field that the sweep asks about; empty where that is not known."""
    changed: tuple[str, ...] = ()
    """Fields that were changed one at a time."""
    best_by: tuple[str, bool] | None = None
    """What was searched for, and whether less of it is better; None where runs were measured."""
    stage: Stage | None = None
    """How far the sweep is; None if the number of its repeats was given."""

    @property
    def compared(self) -> list[Trial]:
        """The trials that are compared: those with a run that ended ok, whose ranks trained one model together."""
        return [trial for trial in self.rows if trial.counted and not trial.independent_ranks]

    def axis_of(self, name: str) -> Axis:
        """Groups of the trials that are compared that differ in one field alone."""
        return Axis.of(self.compared, name, self.varied, self.fixed_batch_field)

    @property
    def until(self) -> Until:
        """Says which differences count as none."""
        return Until() if self.stage is None else self.stage.until

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics that any trial has, in the order of tables."""
        return field_names(trial.estimates for trial in self.rows)

    @property
    def constant(self) -> set[str]:
        """Fields that have a column and yet distinguish no rows: one of the two batches, where the other varies."""
        if len(self.rows) < 2:
            return set()
        return {name for name in self.varied if count_values(self.rows, name) == 1}

    @property
    def is_timed(self) -> bool:
        """Whether any run was in bench mode, so that its times are comparable."""
        return any(record.mode == "bench" for trial in self.rows for record in trial.records)

    @property
    def varied_specs(self) -> list[FieldSpec]:
        """The fields that vary, as far as the configuration class of the workload has them."""
        specs = self.questions.workload.specs()
        return [specs[name] for name in self.varied if name in specs]

    @property
    def asked(self) -> set[str]:
        """The fields that vary, and their families: what `Metric.asked_by` names."""
        return {*self.varied, *(spec.setting.family for spec in self.varied_specs)} - {""}

    def has(self, metric: str) -> bool:
        """Whether any trial has this metric, as a field of its records."""
        return any(metric in trial.estimates for trial in self.rows)


def sweep_trials(
    results: Results,
    varied: Sequence[str] | None = None,
    *,
    best_by: tuple[str, bool] | None = None,
    given: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> SweepTrials:
    """The trials of a sweep, or of a search, with their comparisons.

    Args:
        results: the runs.
        varied: fields that were given several values; without it, those in which the runs differ.
        best_by: a metric, and whether it is to be small, for the best trial first, and those that were stopped after
            those that trained to the end; without it, by the factors.
        given: field -> its values in the order in which they were given: others are compared with the first, unless one
            is the default.
    """
    by_trial: dict[str, list[RunRecord]] = {}
    for record in results.records:
        by_trial.setdefault(record.trial_id, []).append(record)
    factors = [factors_of(records[0]) for records in by_trial.values()]
    names = _factor_names(factors, varied)
    trials = []
    for values, (trial_id, records) in zip(factors, by_trial.items(), strict=True):
        trials.append(Trial(trial_id, {name: values.get(name) for name in names}, records, given=given))
    trials = at_the_same_step(with_known_samples(trials))
    trials.sort(key=lambda trial: trial.position(names))
    if best_by is not None:
        metric, minimizes = best_by
        trials.sort(key=lambda trial: trial.value_of(metric) or 0.0, reverse=not minimizes)
        trials.sort(key=lambda trial: (trial.value_of(metric) is None, trial.is_stopped))
    stage = None
    looks: Looks = "none"
    if results.until is not None:
        measured = [record for record in results.records if record.mode != "search"]
        stage = Stage(measured, results.until).without_those_left_out()
        looks = "last" if stage.is_last else "open"
    questions = Questions.of_trials(trials)
    questions.judged_by = results.judged_by
    comparisons = Comparisons(trials, looks=looks, measures=len(questions.judged(trials)))
    for trial in trials:
        trial.comparisons = comparisons
    batch = _fixed_batch_field(factors, varied or ())
    return SweepTrials(names, trials, batch, questions, best_by=best_by, stage=stage)


def _factor_names(factors: Sequence[Mapping[str, Any]], varied: Sequence[str] | None = None) -> tuple[str, ...]:
    """The fields that distinguish trials: those that were varied, and others in which they differ."""
    fields = field_names(factors)
    names = set(varied or ())
    for name in fields:
        if len({repr(values.get(name)) for values in factors}) > 1:
            names.add(name)
    # A table that shows one batch shows the other.
    if names & {"batch_per_rank", "global_batch", "world_size", "accum_steps"} and "global_batch" in fields:
        names |= {"batch_per_rank", "global_batch"}
    if "machines" not in names:
        names.discard("ranks_per_machine")  # it is world_size then
    return tuple(name for name in fields if name in names)


def _fixed_batch_field(factors: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> str:
    """Which batch stays from one world size, and from one accum_steps, to the next: global_batch (strong scaling) or
    batch_per_rank (weak).
    """
    if "global_batch" in varied:
        return "global_batch"
    groups: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    for values in factors:
        if "accum_steps" in values and values.get("global_batch") is not None:
            groups.setdefault((values["world_size"], values["accum_steps"]), []).append(values)
    of_ranks, of_all = (
        {frozenset(values[name] for values in group) for group in groups.values()}
        for name in ("batch_per_rank", "global_batch")
    )
    if len(of_all) == 1 < len(of_ranks):
        return "global_batch"
    return "batch_per_rank"
