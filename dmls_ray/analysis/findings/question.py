"""The question of a sweep, its answer, and whether it has enough repeats to decide the comparisons that it is about."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dmls_ray.analysis.findings.answer import Answer, answer_along, answer_of_search
from dmls_ray.analysis.findings.changes import answer_on_changes, changed_pairs
from dmls_ray.analysis.findings.critical import answer_on_critical_batch, critical_batch
from dmls_ray.analysis.findings.effects import HOPELESS, Comparison, Effect, compare, judged
from dmls_ray.analysis.findings.overfitting import are_without_overfitting, overfitting_of
from dmls_ray.analysis.findings.sweep_trials import Stage, SweepTrials
from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.config.options import Until
from dmls_ray.util.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SweepQuestion:
    """The question of a sweep."""

    text: str = ""
    """In words."""
    varied: tuple[str, ...] = ()
    """Fields that were given several values."""
    given: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Field -> its values, in the order in which they were given."""
    axis: str | None = None
    """The field that it asks about; None for the first that varies."""
    changed: tuple[str, ...] = ()
    """Fields that were changed one at a time."""
    metric: str | None = None
    """What was searched for; None where runs were measured."""
    minimizes: bool = False
    """Whether less of the metric is better."""
    asked: frozenset[str] = frozenset()
    """run_id of every run that the last call asked for; empty where that is not known, as in a search."""

    @property
    def best_by(self) -> tuple[str, bool] | None:
        """What was searched for, and whether less of it is better; None where runs were measured."""
        return (self.metric, self.minimizes) if self.metric else None

    @classmethod
    def of(cls, sessions: Sequence[Mapping[str, Any]]) -> SweepQuestion:
        """What the calls that filled a folder asked: what any of them varied, and the last one's axis."""
        values: dict[str, dict[str, Any]] = {}
        # In the order of the last call, and then those of calls before it.
        for session in reversed(sessions):
            for name, given in session.get("axes", {}).items():
                for value in given:
                    values.setdefault(name, {}).setdefault(repr(value), value)
        names = itertools.chain.from_iterable(session.get("axes", {}) for session in sessions)
        last = sessions[-1] if sessions else {}
        asked = itertools.product(last.get("trials", []), range(last.get("repeats", 0)))
        return cls(
            text=last.get("question", ""),
            varied=tuple(name for name in dict.fromkeys(names) if len(values[name]) > 1),
            given={name: list(found.values()) for name, found in values.items()},
            axis=last.get("axis"),
            changed=tuple(last.get("changed", ())),
            metric=last["metric"] if last.get("mode") == "search" else None,
            minimizes=bool(last.get("minimizes")),
            asked=frozenset(f"{trial}-{repeat}" for trial, repeat in asked),
        )

    def ask(self, trials: SweepTrials) -> None:
        """Note what is asked on the trials of the sweep: of its field, if that varies, else of the first that does."""
        varied = next(iter(self.varied), self.axis or "batch_per_rank")
        trials.axis = self.axis if self.axis in trials.varied else varied
        trials.changed = self.changed


def answer_of(trials: SweepTrials, question: SweepQuestion) -> Answer:
    """The answer of a sweep's trials to its question."""
    if question.metric:
        return answer_of_search(trials)
    answer = answer_on_changes(trials) if question.changed else answer_on_axis(trials, trials.axis)
    overfitting = overfitting_of(trials.compared)
    # That nothing was found is of interest where it may have been looked for.
    is_asked = "regulariser" in trials.asked or not answer.comparisons
    is_without = is_asked and not overfitting and are_without_overfitting(trials.compared)
    return replace(answer, overfitting=overfitting, is_without_overfitting=is_without)


def answer_on_axis(trials: SweepTrials, axis: str) -> Answer:
    """What a field does to the metrics of the workload; of global_batch, where it stops to save steps to a target."""
    critical = critical_batch(trials) if axis == "global_batch" else None
    if critical is not None:
        return answer_on_critical_batch(critical)
    return answer_along(trials, axis)


@dataclass(frozen=True)
class Decision:
    """What the comparisons of a sweep are known to be after some blocks."""

    until: Until
    claims: Sequence[Effect]
    stage: Stage | None
    """How far the sweep is; None if the number of its repeats was given."""
    beaten: Sequence[Trial] = ()
    """The trials of a race that take no part in further blocks."""

    @cached_property
    def open(self) -> list[Effect]:
        """The comparisons that are not decided, the widest interval first."""
        return _widest_first([claim for claim in self.claims if not claim.is_decided])

    def without_row(self, rows: Sequence[Comparison]) -> list[Effect]:
        """The open comparisons that none of these rows has: a row may be the mean of several pairs."""
        shown = set()
        for effect in itertools.chain.from_iterable(rows):
            if effect.pair.count == 1:
                shown.add((effect.pair.trial.trial_id, effect.pair.base.trial_id, effect.measure.name))
        hidden = []
        for claim in self.open:
            if (claim.pair.trial.trial_id, claim.pair.base.trial_id, claim.measure.name) not in shown:
                hidden.append(claim)
        return hidden

    @cached_property
    def rough(self) -> list[Effect]:
        """The comparisons that are decided and yet hardly say by how much, the widest interval first.

        A race has none: it only asks which trial is the best.
        """
        return _widest_first([claim for claim in self.claims if claim.is_rough and not self.until.race])

    @property
    def goes_on(self) -> bool:
        """Whether more blocks follow."""
        stage = self.stage
        if stage is None:
            return False
        if stage.blocks < FIRST_LOOK:
            return bool(stage.blocks_of)
        # A comparison that most repeats lack, as of a trial that fails, is not decided by more.
        may_be = [claim for claim in self.open if 2 * claim.contrast.n >= stage.blocks]
        return bool(may_be or self.rough) and not stage.is_last

    @cached_property
    def repeats_wanted(self) -> list[int]:
        """About how many repeats decide each open comparison that has an interval, the fewest first."""
        counts = [claim.repeats_wanted() for claim in self.open]
        return sorted(count for count in counts if count is not None)

    @property
    def hopeless(self) -> list[Effect]:
        """The open comparisons that no number of repeats that is advised decides."""
        return [claim for claim in self.open if claim.repeats_wanted() == HOPELESS]

    @property
    def realistic(self) -> list[int]:
        """The `repeats_wanted` that are advised."""
        return [count for count in self.repeats_wanted if count < HOPELESS]


def decide(
    trials: SweepTrials,
    varied: Sequence[str],
    race: Callable[[Any, str], tuple[Sequence[Trial], Sequence[Effect]]] | None = None,
) -> Decision:
    """What the comparisons of a sweep are known to be.

    Args:
        trials: the trials.
        varied: the fields that were given several values.
        race: returns the trials that are beaten for an aim, and the comparisons of the others with the best one; raises
            ConfigError where runs report nothing of it, and they are compared as those of any sweep then.
    """
    stage = trials.stage
    is_measured = any(trial.counted for trial in trials.rows)
    if race is not None and stage is not None and stage.until.aim is not None and is_measured:
        # Who was beaten stays out: with few repeats it may look better again by chance.
        left = [trial for trial in trials.rows if trial.trial_id not in stage.beaten]
        with suppress(ConfigError):
            found, claims = race(replace(trials, rows=left), stage.until.aim)
            beaten = [trial for trial in trials.rows if trial.trial_id in stage.beaten] + list(found)
            stage = replace(stage, beaten=frozenset(trial.trial_id for trial in beaten))
            return Decision(stage.until, claims, stage, beaten)
    return Decision(trials.until, claims_of(trials, varied), stage)


def claims_of(trials: SweepTrials, varied: Sequence[str]) -> list[Effect]:
    """The comparisons that the question of a sweep is about.

    Neighbours and ends of an axis of numbers, each choice against the default, each number of ranks against the
    smallest, each change against the trial without any; and what a workload compares within runs.

    Args:
        trials: the trials.
        varied: the fields that were given several values.
    """
    if trials.changed:
        return judged(_compare(trials, changed_pairs(trials)))
    pairs: list[Pair] = []
    for name in varied:
        if name in trials.varied:
            axis = trials.axis_of(name)
            for group in axis.groups:
                pairs += axis.steps(group) + axis.ends(group)
    return judged(_compare(trials, pairs) + trials.questions.comparisons_within_trials(trials))


def _compare(trials: SweepTrials, pairs: Sequence[Pair]) -> list[Sequence[Effect]]:
    """The effects of each pair, once, on the measures of its trials."""
    comparisons: dict[tuple[str, str], Sequence[Effect]] = {}
    for pair in pairs:
        key = (pair.trial.trial_id, pair.base.trial_id)
        if key not in comparisons:
            measures = trials.questions.measures([pair.trial, pair.base])
            comparisons[key] = compare([pair], measures, trials.until)
    return list(comparisons.values())


def _widest_first(claims: Sequence[Effect]) -> list[Effect]:
    return sorted(claims, key=lambda claim: -(claim.contrast.half_width or 0.0))
