"""`Plan`: the ordered list of runs of a grid, with repeats in shuffled blocks."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dmls_ray.config.axes import Axes, Range
from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import MACHINE_FIELDS, RuntimeConfig, Schema
from dmls_ray.config.value_texts import as_flag_value
from dmls_ray.util.errors import ConfigError, ConflictError

BASELINE = "baseline"
"""Name of the trial that changes none of the fields that variants change, in logs, tables and figures."""

SEED_STRIDE = 10_000
"""Repeat r trains with seed + r x SEED_STRIDE (modulo 2**31), so that neighbouring seeds on an axis share no run."""


@dataclass(frozen=True)
class Refused:
    """Values that do not go together, in place of their configuration."""

    values: Mapping[str, Any]

    @property
    def seed(self) -> int:
        return int(self.values["seed"])

    def canonical(self) -> dict[str, Any]:
        """The values as they were given."""
        return dict(self.values)

    factors = canonical


@dataclass(frozen=True, kw_only=True)
class Run:
    """One trial with one seed.

    Runs of one block (one repeat of every trial) stand together in the order, and share their seed, so that trials
    can be compared in pairs, block by block.
    """

    config: RuntimeConfig | Refused
    """The configuration; `Refused` where the values do not go together."""
    trial_id: str
    """The hash of the configuration, and of the user's code and data where it has any."""
    identity: Identity = field(default_factory=Identity)
    """The user's code and data."""
    repeat: int = 0
    order: int = 0
    skip: str = ""
    """The reason why this run is not feasible; empty if it is."""
    unchanged: frozenset[str] = frozenset()
    """Fields that other variants change and this one does not."""
    is_baseline: bool = False
    """Whether it changes none of the fields that variants change."""
    proposed: Mapping[str, Any] = field(default_factory=dict)
    """What a searcher proposed for this run."""

    @property
    def run_id(self) -> str:
        return f"{self.trial_id}-{self.repeat}"

    @property
    def values(self) -> Mapping[str, Any]:
        """The fields of the configuration as plain values."""
        return self.config.canonical()

    @property
    def seed(self) -> int:
        return int((self.config.seed + self.repeat * SEED_STRIDE) % 2**31)

    def label(self, varied: Sequence[str]) -> str:
        """The run by its varied fields, `world_size=2 batch_per_rank=16`, and its repeat."""
        values = self.config.factors()
        names = [name for name in varied if name not in self.unchanged]
        parts = [BASELINE] if self.is_baseline else []
        parts += [f"{name}={values[name]}" for name in names if values.get(name) is not None]
        return " ".join([*parts, f"repeat={self.repeat}"])

    def seeded(self) -> RuntimeConfig:
        """The configuration with the seed of this run: what a rank trains with."""
        assert isinstance(self.config, RuntimeConfig), self.skip
        # The other values were checked when the configuration was made.
        config = copy.copy(self.config)
        object.__setattr__(config, "seed", self.seed)
        return config


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All runs of a sweep, in the order in which they are to be run."""

    axes: Mapping[str, tuple[Any, ...]]
    """Every field that was given, by itself or in a variant, with its values."""
    repeats: int
    order_seed: int
    runs: tuple[Run, ...]
    changed: tuple[str, ...] = ()
    """The fields that variants change."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Recorded values that are no fields: the workload or the function."""
    asked: Mapping[str, Any] | None = None
    """What was asked, as a sweep file has it; None where no file can."""

    @property
    def varied(self) -> tuple[str, ...]:
        """The fields with more than one value, in the order of their schema."""
        return tuple(name for name, values in self.axes.items() if len(values) > 1)

    @property
    def run_ids(self) -> set[str]:
        """The run_id of each run."""
        return {run.run_id for run in self.runs}

    def skip_infeasible(self, reason: Callable[[Any], str]) -> Plan:
        """A copy in which each run that is not feasible has its reason as `skip`."""
        return replace(self, runs=tuple(replace(run, skip=run.skip or reason(run.config)) for run in self.runs))

    def pending(self, done: Collection[str]) -> tuple[Run, ...]:
        """The runs whose run_id is not in `done`."""
        return tuple(run for run in self.runs if run.run_id not in done)


def skipped_values(plan: Plan) -> list[str]:
    """A line for each value of an axis of which every run is skipped, with the reason; one line where all runs are."""
    if all(run.skip for run in plan.runs):
        return [f"Every run is skipped{_reason_of(plan.runs)}"]
    lines = []
    for name in plan.varied:
        by_value: dict[str, list[Run]] = {}
        for run in plan.runs:
            if name not in run.unchanged:
                by_value.setdefault(as_flag_value(run.config.factors().get(name)), []).append(run)
        left = [value for value, runs in by_value.items() if not all(run.skip for run in runs)]
        for value, runs in by_value.items():
            if value not in left:
                lines.append(f"Every run with {name}={value} is skipped{_reason_of(runs)}")
        if len(left) == 1 < len(by_value):
            lines.append(f"No values of {name} can be compared: only {left[0]} is feasible.")
    return lines


def _reason_of(runs: Sequence[Run]) -> str:
    """Why runs are skipped, to be put after a sentence."""
    reasons = {run.skip for run in runs}
    example = ", for example" if len(reasons) > 1 else ""
    return f"{example}: {runs[0].skip}"


def configs_of(runs: Iterable[Run]) -> list[RuntimeConfig]:
    """The configurations of the runs whose values do not conflict."""
    return [run.config for run in runs if isinstance(run.config, RuntimeConfig)]


Variant = Mapping[str, Any]
"""Fields that are changed together."""


def build_plan(
    axes: Axes, schema: Schema, *, variants: Sequence[Variant] = ({},), repeats: int = 3, order_seed: int = 0
) -> Plan:
    """The plan of a full grid, or of several variants of each of its points.

    Args:
        axes: field of the schema -> its checked values. Equal points collapse into one.
        schema: the fields of the configuration.
        variants: what is changed at each point of the grid, one after the other: one thing at a time where a full grid
            would be too large. An empty one leaves the point as it is.
        repeats: runs of each trial, each with its own seed.
        order_seed: seed of the order within the blocks.

    Raises:
        ConfigError: an axis is a range, a value of a variant is wrong, or no point of the grid is right.
    """
    if repeats < 1:
        raise ConfigError(f"repeats={repeats} is out of range; give 1 or more.")
    defaults = schema.defaults
    if {"world_size", *MACHINE_FIELDS} <= axes.keys():
        raise ConfigError("world_size, machines and ranks_per_machine are all given; give two: the third follows.")
    ranges = [name for name, given in axes.items() if isinstance(given, Range)]
    if ranges:
        raise ConfigError(
            f"{', '.join(ranges)} has a range, which a grid cannot enumerate; add --search --searcher random (or "
            "optuna), or give values."
        )
    settled: dict[str, Any] = {name: axes[name] for name in schema.specs if name in axes}
    changed = [{name: schema.check(name, value) for name, value in variant.items()} for variant in variants]
    in_variants = frozenset().union(*changed)
    trials: dict[str, Run] = {}
    effective: set[str] = set()
    for *point, variant in itertools.product(*settled.values(), changed):
        values = {**dict(zip(settled, point, strict=True)), **variant}
        effective |= drop_ineffective(values, schema)
        run = make_run(
            values, schema, unchanged=in_variants - variant.keys(), is_baseline=bool(in_variants) and not variant
        )
        trials.setdefault(run.trial_id, run)

    for name, (condition, counts) in schema.counts_with.items():
        idle = [value for value in settled.get(name, ()) if value != defaults[name]]
        if idle and name not in effective:
            others = settled.get(condition, (defaults[condition],))
            raise ConflictError(
                f"{name}={', '.join(map(str, idle))} has no effect with {condition}={', '.join(map(str, others))}; use "
                f"{condition} {' or '.join(counts)}, or {name} {as_flag_value(defaults[name])}."
            )
    if all(run.skip for run in trials.values()):
        raise ConflictError(next(iter(trials.values())).skip)

    runs: list[Run] = []
    for repeat in range(repeats):
        # Seeded by the block as well: more repeats later leave the order of earlier blocks as it was.
        for trial_id in random.Random(f"{order_seed}/{repeat}").sample(sorted(trials), len(trials)):
            runs.append(replace(trials[trial_id], repeat=repeat, order=len(runs)))
    plan_axes: dict[str, tuple[Any, ...]] = {}
    for name in defaults:
        if name not in settled and name not in in_variants:
            continue
        given = [variant[name] for variant in changed if name in variant]
        # Where every variant changes the field, no run has its value without them.
        if len(given) < len(changed):
            given = [*settled.get(name, (defaults[name],)), *given]
        plan_axes[name] = tuple(dict.fromkeys(given))
    varied = tuple(name for name in defaults if name in in_variants)
    return Plan(
        axes=plan_axes, repeats=repeats, order_seed=order_seed, runs=tuple(runs), changed=varied, fixed=schema.fixed
    )


def make_run(values: Mapping[str, Any], schema: Schema, **facts: Any) -> Run:
    """The first run of the trial with these values; its `skip` is the reason if they conflict.

    Machines without a number of ranks have one rank each, and ranks_per_machine alone is those of one machine.

    Args:
        values: fields of the schema.
        schema: the fields of the configuration.
        facts: further fields of the run.
    """
    sizes = {name for name in ("world_size", *MACHINE_FIELDS) if values.get(name) is not None}
    if len(sizes) == 1 and "world_size" not in sizes:
        values = {**dict.fromkeys(MACHINE_FIELDS, 1), **values}
    try:
        config = schema.make(**values)
    except ConflictError as conflict:
        # Without its batch settled such a point has no canonical form; its values as given name it.
        refused = Refused({**schema.defaults, **values})
        config_hash = schema.hash_of({**schema.fixed, **refused.values})
        return Run(config=refused, trial_id=config_hash, skip=str(conflict), **facts)
    config_hash = schema.hash_of({**schema.fixed, **config.canonical()})
    identity = schema.identity_of(config)
    return Run(config=config, trial_id=identity.trial_id(config_hash), identity=identity, **facts)


def drop_ineffective(values: dict[str, Any], schema: Schema) -> set[str]:
    """Set fields without an effect at a point of the grid to their default, so that equal points collapse into one.

    Returns:
        The conditional fields that have an effect.
    """
    effective = set()
    for name, (condition, counts) in schema.counts_with.items():
        if values.get(condition, schema.defaults[condition]) in counts:
            effective.add(name)
        elif name in values:
            values[name] = schema.defaults[name]
    return effective
