"""What `--format json` prints: a class for each kind of object. docs/schema.json is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from dmls_ray.analysis.findings import effects, measures, replacement, same_losses, same_training
from dmls_ray.analysis.stats.intervals import Estimate
from dmls_ray.analysis.trials.steps import StepChange
from dmls_ray.analysis.words_on_pairs import pair_label, place_text


class Output(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=str.lower):
    """Every object that a command prints."""

    schema: Literal[1] = 1
    """Version of the objects: it grows when a name goes or means something else."""


class EffectObject(Estimate, frozen=True):
    """What one trial does to a metric against another one. All intervals of an answer hold together, at 95%."""

    pair: str
    """The two trials: `batch_size 64 vs 16`."""
    where: str
    """What else both have: `2 ranks`."""
    metric: str
    kind: measures.Kind
    """speed, duration and ratio are quotients; points and difference are differences; level is a value."""
    verdict: effects.EffectVerdict
    """more and less are beyond chance; equal: within --equivalent; close: no difference beyond chance, known closely;
    open: undecided; once: the repeats repeat one run."""
    training: same_training.TrainingVerdict | None
    """Whether both train the same, as far as it was seen."""

    @classmethod
    def of_effect(cls, effect: effects.Effect, training: same_training.TrainingChange | None = None) -> EffectObject:
        """That of an effect, with what is known of the training of its trials."""
        contrast = effect.contrast
        return cls(
            centre=contrast.centre, low=contrast.low, high=contrast.high, n=contrast.n,
            pair=pair_label(effect.pair), where=place_text(effect.pair),
            metric=effect.measure.metric, kind=effect.measure.kind, verdict=effect.verdict,
            training=None if training is None else training.verdict,
        )  # fmt: skip


def effect_object(effect: effects.Effect | None) -> EffectObject | None:
    """That of an effect, if there is one."""
    return None if effect is None else EffectObject.of_effect(effect)


class TrialObject(msgspec.Struct, frozen=True):
    """One configuration."""

    trial_id: str
    values: Mapping[str, Any]
    """The fields that vary."""
    outcome: str
    n: int
    """Number of runs that count."""
    metrics: Mapping[str, Estimate]


class AnswerObject(Output, frozen=True):
    """What a sweep says to its question."""

    folder: str
    headline: str
    training: str
    """Whether the two trials of the headline train the same, in words."""
    effects: Sequence[EffectObject]
    comparisons: int | None
    """Number of comparisons that are to be decided; null where that is not said."""
    open: Sequence[str] | None
    """Those that are undecided. Empty: stop here."""
    repeats_wanted: int | None
    """About how many repeats would decide those that can be decided."""
    undecided: str
    """The same in words."""
    why: StepChange | None
    """Where the difference between the steps of the headline's trials goes, in milliseconds."""
    trials: Sequence[TrialObject]


class Sweep(AnswerObject, frozen=True):
    """`dmls-ray sweep`: the answer of a sweep."""

    smallest_fast: Sequence[str]
    """Of --batch-size max: the smallest value that is as fast, in words."""


class Table(AnswerObject, frozen=True):
    """`dmls-ray table`: the answer of a results folder."""


class Ab(AnswerObject, frozen=True):
    """`dmls-ray ab`: whether a revision is slower, or with --metric better."""

    a: str
    b: str
    verdict: replacement.Word
    exit_code: int
    allowed: float | None
    """Share of the speed that may be lost; null where a metric is judged."""
    judged: Sequence[EffectObject]
    """The speed, or the metric, of b against a, in each place."""
    outcomes: Sequence[str]
    """How runs of b ended that did not train, or have no number of the metric."""


class Same(Output, frozen=True):
    """`dmls-ray same`: whether settings train the same."""

    folder: str
    base: str
    """The first setting, with which the others are compared."""
    exit_code: int
    compared: Mapping[str, same_losses.LossVerdict]
    """Another setting -> how it compares with the first."""
    without_effect: Mapping[str, str]
    """What the script asks for in vain, as to shuffle without `set_epoch` -> the settings."""


class TriedObject(msgspec.Struct, frozen=True):
    """A change of settings that was measured."""

    values: Mapping[str, Any]
    does: str
    """What they do; empty where their names say it."""
    speed: EffectObject | None
    """Against the settings of its time; null where it was not measured."""
    outcome: str
    changes_training: bool
    """Whether it is among the settings that change what is trained."""
    training: same_training.TrainingVerdict | None
    last_losses: tuple[float, float] | None
    """Losses of the last step, of the change and of the settings of its time."""
    is_forbidden: bool
    """Whether it changes the training, which it was not to."""


class Tune(Output, frozen=True):
    """`dmls-ray tune`: the fastest settings."""

    folder: str
    start: str
    """The command at the start."""
    command: str
    """The command to use: that of the start where nothing is faster beyond chance."""
    is_faster: bool
    gain: EffectObject | None
    """The speed of the command against the start, by runs of their own."""
    changes_training: bool
    kept: Sequence[TriedObject]
    lost: Sequence[TriedObject]
    not_tried: Mapping[str, str]
    """Setting or change, and why it was not tried."""
    settings: Mapping[str, str]
    """Setting, and the flag that has it."""


class PairObject(msgspec.Struct, frozen=True):
    """A configuration that both sweeps have."""

    trial_id: str
    config: Mapping[str, Any]
    a: Estimate | None
    b: Estimate | None
    change: Estimate | None
    """B against A; null where it did not end ok in both."""
    verdict: str
    outcomes: tuple[str, str]


class Compare(Output, frozen=True):
    """`dmls-ray compare`: two results folders."""

    metric: str
    way: str
    """speed and ratio: B / A; difference: B - A."""
    unit: str
    """What a sample is: a session, or a repeat."""
    over_all: Estimate | None
    """Over all configurations that ended ok in both."""
    verdict: str | None
    pairs: Sequence[PairObject]
    only: Mapping[str, Sequence[str]]
    """Configurations of a alone and of b alone, in words."""
    provenance: Mapping[str, tuple[Any, Any]]
    """What else differs: fact, and its values in a and in b."""


class RankedObject(msgspec.Struct, frozen=True):
    """A configuration with its place for an aim."""

    trial_id: str
    config: Mapping[str, Any]
    verdict: str
    outcome: str
    n: int
    objective: Estimate | None
    """Its value of the aim; null where it cannot be chosen."""
    against_best: Estimate | None
    reason: str
    """Why it cannot be chosen; empty if it can."""
    is_on_front: bool
    """Whether no other one beats it in all of front_metrics."""


class Advise(Output, frozen=True):
    """`dmls-ray advise`: the best configuration for an aim."""

    objective: str
    metric: str
    minimizes: bool
    target: float | None
    is_ratio: bool
    """Whether against_best is a quotient, and not a difference."""
    trials: Sequence[RankedObject]
    """The best first, those that cannot be chosen last."""
    front_metrics: Sequence[str]
    loss: EffectObject | None
    """By how much the best one is less accurate than the most accurate one, beyond chance."""
    loss_base: str
    """trial_id of the most accurate one; empty without a loss."""


class RunningObject(msgspec.Struct, frozen=True):
    """A sweep whose runs go on now."""

    folder: str
    done: int
    """Runs of its command that have ended."""
    total: int
    """Runs that its command makes, as far as it is known."""
    run_id: str
    """The run that was last heard of; empty while Ray and the ranks start."""
    seconds_since_progress: float
    """Since its last step or event. Steps are heard of every ten seconds; those of a search with its epochs."""


class Ls(Output, frozen=True):
    """`dmls-ray ls`: the sweeps below a folder."""

    sweeps: Sequence[Mapping[str, str]]
    running: Sequence[RunningObject] | None
    """Those whose runs go on now; null at a URI, where that is not known."""


class Show(Output, frozen=True):
    """`dmls-ray show`: one run."""

    folder: str
    run: Mapping[str, Any]
    """The whole record."""


KINDS = (Sweep, Table, Ab, Same, Tune, Compare, Advise, Ls, Show)
"""The objects, one for each command."""
