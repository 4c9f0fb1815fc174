"""`Tuner`: a coordinate search for the fastest settings of one training, in which each setting is a race.

One setting after the other is changed, and what gains beyond chance is kept. At the end the settings that were found
are measured against the start again, with other seeds: what was chosen for its gain looks faster than it is.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.analysis.findings.effects import Effect, compare
from dmls_ray.analysis.findings.measures import speed
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.findings.same_training import TrainingChange, training_change
from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.common_metrics import speed_metric
from dmls_ray.analysis.trials.steps import StepChange, step_change
from dmls_ray.analysis.trials.trial import STEPS_PER_S, Trial
from dmls_ray.config.grid import SEED_STRIDE, Plan
from dmls_ray.config.options import Options, Until
from dmls_ray.config.tunables import BATCH, TUNABLES, Change, at_one_product, batch_by_size, changes_of
from dmls_ray.execution.prober import Prober
from dmls_ray.records.model import seconds_of_run

_CONFIRMING_SHARE = 0.25
"""Share of the time that is left for the last comparison."""
_FEWEST_CONFIRMING, _MOST_CONFIRMING = 5, 12
"""Repeats of the last comparison."""


@dataclass(frozen=True)
class Tried:
    """A change that was measured against the settings of its time."""

    change: Change
    effect: Effect | None
    """Its speed against these; None where it was not measured, or the samples of a step are not known."""
    outcome: str = ""
    """How its runs ended, if not ok."""
    why: StepChange | None = None
    training: TrainingChange | None = None
    """How the training differs, as it was seen."""
    last_losses: tuple[float, float] | None = None
    """Losses of the last step, of the change and of the settings of its time."""
    is_forbidden: bool = False
    """Whether it changes the training, which it was not to."""


@dataclass
class Tuning:
    """What a search for the fastest settings found."""

    roles: dict[str, str]
    """Setting -> the field that has it."""
    base: Mapping[str, Any]
    """The settings at the start."""
    kept: list[Tried] = field(default_factory=list)
    """The changes that gained, in their order."""
    lost: list[Tried] = field(default_factory=list)
    not_tried: dict[str, str] = field(default_factory=dict)
    """Setting or change -> why it was not tried."""
    gain: Effect | None = None
    """The speed of all that is kept against the start, by runs of their own; None without any."""
    start: Trial | None = None
    """The trial of the start, in the last comparison if there was one."""
    end: Trial | None = None
    run_s: float = 0.0
    """Seconds of a run at the start."""

    @property
    def is_faster(self) -> bool:
        """Whether the last comparison found what is kept faster beyond chance."""
        return _is_gain(self.gain)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings so far."""
        return {**self.base, **self.changed}

    @property
    def changed(self) -> dict[str, Any]:
        """What they have otherwise than the start."""
        changed: dict[str, Any] = {}
        for tried in self.kept:
            changed |= tried.change.values
        return changed


class Tuner:
    """A search for the fastest settings of one training.

    Args:
        prober: makes the runs.
        base: the settings at the start.
        budget_s: seconds of the whole search.
        cores: CPU cores of a rank.
        change_training: whether to try what changes the training, too.
        roles: setting -> the field that has it.
    """

    def __init__(
        self,
        prober: Prober,
        base: Mapping[str, Any],
        *,
        budget_s: float,
        cores: int,
        change_training: bool,
        roles: Mapping[str, str],
    ) -> None:
        self._prober = prober
        self._ends = time.monotonic() + budget_s
        self._cores, self._change_training = cores, change_training
        self._specs = prober.workload.schema().specs
        self.found = Tuning(dict(roles), base)

    def measure_start(self) -> bool:
        """Measure the settings at the start; returns whether they train.

        Where no name tells the flag of the batch, it is the only one whose value is the number of samples that a rank
        was seen to have in a step.
        """
        found = self.found
        table, _ = self._measure([{}], repeats=1)
        start = found.start = found.end = table.rows[0]
        self._device = start.records[0].device
        found.run_s = seconds_of_run(start.records[0])
        samples = start.value_of("samples_per_step")
        if BATCH.role not in found.roles and samples:
            of_pass = samples / start.world_size / (start.value_of("backward_passes") or 1)
            if name := batch_by_size(self._specs, found.base, of_pass):
                found.roles[BATCH.role] = name
        return bool(start.counted)

    def search(self) -> Tuning:
        """Try one setting after the other within the budget."""
        found, to_try = self.found, self._to_try()
        for number, (role, changes) in enumerate(to_try):
            fitting = changes[: self._fitting]
            found.not_tried |= {str(change): "no time was left" for change in changes[len(fitting) :]}
            if fitting:
                self._try(role, fitting, self._searching_s / (len(to_try) - number))
        if found.kept:
            self._confirm()
        return found

    def _to_try(self) -> list[tuple[str, list[Change]]]:
        """The changes of each setting, those that leave the training as it is first."""
        found, ranks = self.found, int(self.found.base.get("world_size", 1))
        together = at_one_product(found.roles, self._specs, found.base)
        to_try = [("batch x accumulation", together)] if together else []
        for tunable in TUNABLES:
            role = tunable.role
            if role not in found.roles:
                continue
            changes = changes_of(role, found.roles, self._specs, found.base, self._cores)
            if tunable.ddp_only and ranks == 1:
                found.not_tried[role] = "it is one of several ranks"
            elif not self._device.startswith(tunable.device):
                found.not_tried[role] = f"it has no effect on {self._device}"
            elif tunable.changes_training and not self._change_training:
                found.not_tried[role] = "it changes the training; --change-training tries it"
            elif not changes:
                found.not_tried[role] = (
                    f"no other value is known for it here; sweep {found.roles[role]} with values of your choice"
                )
            else:
                to_try.append((role, changes))
        return to_try

    @property
    def _searching_s(self) -> float:
        """Seconds that are left before the last comparison."""
        return (self._ends - time.monotonic()) * (1 - _CONFIRMING_SHARE)

    @property
    def _fitting(self) -> int:
        """How many changes can be measured in the time that is left, beside the settings so far."""
        return max(0, int(self._searching_s / (FIRST_LOOK * self.found.run_s)) - 1)

    def _try(self, role: str, changes: Sequence[Change], seconds: float) -> None:
        """Let some changes of one setting race against the settings so far, and keep the best one that gains."""
        self._prober.view.note(f"Trying {role}: {', '.join(map(str, changes))}")
        variants = [{}, *(change.values for change in changes)]
        table, plan = self._measure(variants, race=True, aim="throughput", budget=max(seconds, 1.0))
        base, *rows = _rows_in_order(table, plan, variants)
        tried = [self._judge(change, row, base) for change, row in zip(changes, rows, strict=True)]
        gains = [item for item in tried if _is_gain(item.effect) and not item.is_forbidden]
        best = max(gains, key=lambda item: item.effect.size if item.effect else 0.0, default=None)
        if best is not None:
            self.found.kept.append(best)
        self.found.lost += [item for item in tried if item is not best]

    def _judge(self, change: Change, row: Trial | None, base: Trial | None) -> Tried:
        if row is None or base is None or not row.counted:
            return Tried(change, None, row.outcome if row is not None else "skipped")
        pair = Pair(row, base, "change", value=str(change))
        seen = training_change(pair)
        # The name of a flag says less than what was seen.
        if seen is not None and seen.is_other:
            change = dataclasses.replace(change, changes_training=True)
        return Tried(
            change,
            _speed_of(pair, self._prober.options, has_equal_steps=not change.changes_training),
            why=step_change(row, base),
            training=seen,
            last_losses=_last_losses(row, base),
            is_forbidden=change.changes_training and not self._change_training,
        )

    def _confirm(self) -> None:
        """Measure all that is kept against the start, with other seeds."""
        found, together = self.found, self.found.changed
        self._prober.view.note("Measuring what was found against the start, with other seeds")
        left_s = self._ends - time.monotonic()
        repeats = min(max(int(left_s / (2 * found.run_s)), _FEWEST_CONFIRMING), _MOST_CONFIRMING)
        seed = int(found.base.get("seed", 0)) + SEED_STRIDE // 2
        table, plan = self._measure([{}, together], start={**found.base, "seed": seed}, repeats=repeats)
        start, end = _rows_in_order(table, plan, [{}, together])
        if start is None or end is None or not (start.counted and end.counted):
            return
        found.start, found.end = start, end
        has_equal_steps = not any(tried.change.changes_training for tried in found.kept)
        found.gain = _speed_of(
            Pair(end, start, "change", value=""), self._prober.options, has_equal_steps=has_equal_steps
        )

    def _measure(
        self, variants: Sequence[Mapping[str, Any]], *, start: Mapping[str, Any] | None = None, **options: Any
    ) -> tuple[Table, Plan]:
        """Run variants of the settings so far; returns their trials."""
        settings = self.found.settings if start is None else start
        if "repeats" in options:
            # What decides on further repeats does not apply to a given number.
            options |= {item.name: getattr(Until, item.name) for item in dataclasses.fields(Until)}
        axes = {name: (value,) for name, value in settings.items()}
        results, plan = self._prober.measure(axes, dataclasses.replace(self._prober.options, **options), variants)
        return SweepSummary(results, SweepQuestion(varied=plan.varied)).table, plan


def _rows_in_order(table: Table, plan: Plan, variants: Sequence[Mapping[str, Any]]) -> list[Trial | None]:
    """The trial of each variant; None for one that has no run."""
    rows = {row.trial_id: row for row in table.rows}
    by_change: dict[frozenset[tuple[str, str]], Trial | None] = {}
    for run in plan.runs:
        changed = {(name, repr(run.values.get(name))) for name in plan.changed if name not in run.unchanged}
        by_change[frozenset(changed)] = rows.get(run.trial_id)
    return [by_change.get(frozenset((name, repr(value)) for name, value in values.items())) for values in variants]


def _is_gain(effect: Effect | None) -> bool:
    """Whether it is faster beyond chance; without an interval, as of two runs, nothing is."""
    return effect is not None and effect.contrast.low is not None and effect.gain > 0


def _last_losses(row: Trial, base: Trial) -> tuple[float, float] | None:
    """The losses of the last step or epoch of two trials; None where they were not seen."""
    for metric in ("last_loss", "train_loss"):
        loss, base_loss = row.value_of(metric), base.value_of(metric)
        if loss is not None and base_loss is not None:
            return loss, base_loss
    return None


def _speed_of(pair: Pair, options: Options, *, has_equal_steps: bool) -> Effect | None:
    """The speed of a trial against another one; None where it is not known.

    Args:
        pair: the trials.
        options: say until when they are repeated.
        has_equal_steps: whether both train the same in a step, so that steps per second are their speed.
    """
    until = options.until
    assert until is not None
    measures = [speed(speed_metric(pair.trial, pair.base))]
    if has_equal_steps:
        measures.append(speed(STEPS_PER_S))
    effects = compare([pair], measures, until)
    return effects[0] if effects and effects[0].measure.kind == "speed" else None
