"""Which trials lose accuracy against other choices: none of these is recommended for its speed, memory or cost.

An amount of work, as a batch, ranks, epochs or the width of a model, is no such choice: what another one loses is said
with what it gains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmls_ray.analysis.findings.effects import Effect, effect_of
from dmls_ray.analysis.findings.measures import Measure
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.metrics import resolution_of
from dmls_ray.analysis.trials.axis import RANKS, Pair, group_by_other_factors
from dmls_ray.analysis.trials.trial import Comparisons, Trial
from dmls_ray.config.fields import field_specs
from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.returned import is_number

_NOT_CHOSEN = {*RANKS, "dataset"}
"""Fields of which another value is another number of ranks, or another task."""


def losers_of(
    trials: SweepTrials, chosen_from: Sequence[Trial], comparisons: Comparisons | None = None
) -> dict[str, Effect]:
    """The trials that lose accuracy, or have a higher loss, beyond chance, by trial_id.

    Trials of as much work are compared with the one at the defaults; with the most accurate one if there is none, or if
    it is itself less accurate by more than what counts as no difference. Without intervals, only what is worse by more
    than that, and by more than so few test samples may differ by chance, loses.

    Args:
        trials: the trials of the sweep.
        chosen_from: those that may be chosen.
        comparisons: how they compare, if otherwise than in their table.
    """
    measure = _result_of(trials, chosen_from)
    if measure is None:
        return {}
    known = [trial for trial in chosen_from if trial.by_block(measure.metric)]
    choices = [name for name in trials.varied if _is_choice(name, known)]
    found = {}
    for group in group_by_other_factors(known, choices):
        best = measure.best_of(group)
        base = next((trial for trial in group if _is_default(trial, choices)), best)
        behind = effect_of([Pair(base, best)], measure, trials.until, comparisons)
        if behind is not None and behind.is_worse(trials.until.equivalent):
            base = best
        for trial in group:
            effect = effect_of([Pair(trial, base, "trial")], measure, trials.until, comparisons)
            if effect is not None and _is_loss(effect):
                found[trial.trial_id] = effect
    return found


def loss_of(trials: SweepTrials, trial: Trial) -> Effect | None:
    """By how much a trial is less accurate than the most accurate one, beyond chance; None where it is not."""
    measure = _result_of(trials, trials.rows)
    if measure is None:
        return None
    known = [item for item in trials.compared if item.by_block(measure.metric) and not item.is_stopped]
    best = measure.best_of(known or [trial])
    effect = effect_of([Pair(trial, best, "trial")], measure, trials.until)
    return effect if effect is not None and _is_loss(effect) else None


def level_text(loss: Effect) -> str:
    """`test accuracy 0.114`."""
    return f"{loss.measure.noun} {loss.pair.trial.text(loss.measure.metric)}"


def _result_of(trials: SweepTrials, chosen_from: Sequence[Trial]) -> Measure | None:
    """The accuracy or the loss that a configuration is chosen for."""
    return next((measure for measure in trials.questions.measures(chosen_from) if measure.is_result), None)


def _is_loss(effect: Effect) -> bool:
    if effect.contrast.low is not None:
        return effect.is_worse()
    # One run says nothing of the spread over seeds, but its test samples do: the error of a share of so many.
    variance = 0.0
    for trial in (effect.pair.trial, effect.pair.base):
        share = min(max(trial.value_of(effect.measure.metric) or 0.0, 0.0), 1.0)
        variance += share * (1 - share) * resolution_of(effect.measure.metric, trial.counted)
    return effect.is_worse(max(effect.until.equivalent, 1.96 * math.sqrt(variance)))


def _is_choice(name: str, trials: Sequence[Trial]) -> bool:
    """Whether a field is chosen for what is learned, and is no amount of work: a number with a unit, or of a user."""
    values = [trial.factors[name] for trial in trials if trial.factors[name] is not None]
    if name in _NOT_CHOSEN or not values:
        return False
    if not all(is_number(value) for value in values):
        return True
    specs = field_specs(TrainingConfig) | dict(trials[0].workload.specs())
    return name in specs and not specs[name].setting.unit


def _is_default(trial: Trial, names: Sequence[str]) -> bool:
    specs = trial.workload.specs()
    for name in names:
        value = trial.factors[name]
        if value is not None and (name not in specs or value != specs[name].default):
            return False
    return True
