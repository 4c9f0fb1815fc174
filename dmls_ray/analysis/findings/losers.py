"""Which trials lose accuracy against other choices: none of these is recommended for its speed, memory or cost.

An amount of work, as a batch, ranks, epochs or the width of a model, is no such choice: what another one loses is said
with what it gains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmls_ray.analysis.findings.effects import Effect, Pair
from dmls_ray.analysis.findings.measures import Measure
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.metrics import resolution_of
from dmls_ray.analysis.trials.axis import RANKS, is_number
from dmls_ray.analysis.trials.compare import Comparisons
from dmls_ray.analysis.trials.groups import group_by_other_factors
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.config.fields import field_specs
from dmls_ray.config.training import TrainingConfig
from dmls_ray.config.until import Until

_NOT_CHOSEN = {*RANKS, "dataset"}
"""Fields of which another value is another number of ranks, or another task."""


def losers_of(trials: SweepTrials, rows: Sequence[Row], comparisons: Comparisons | None = None) -> dict[str, Effect]:
    """The trials that lose accuracy, or have a higher loss, beyond chance, by trial_id.

    Trials of as much work are compared with the one at the defaults; with the most accurate one if there is none, or if
    it is itself less accurate by more than what counts as no difference. Without intervals, only what is worse by more
    than that, and by more than so few test samples may differ by chance, loses.

    Args:
        trials: the trials of the sweep.
        rows: those that may be chosen.
        comparisons: how they compare, if otherwise than in their table.
    """
    measure = _result_of(trials, rows)
    if measure is None:
        return {}
    known = [row for row in rows if measure.is_of(row)]
    chosen = [name for name in trials.varied if _is_choice(name, known)]
    found = {}
    for group in group_by_other_factors(known, chosen):
        best = max(group, key=measure.goodness)
        base = next((row for row in group if _is_default(row, chosen)), best)
        worse = measure.against(base, best, comparisons)
        if worse is not None and measure.is_worse(worse, trials.until.equivalent):
            base = best
        for row in group:
            loss = _loss(row, base, measure, trials.until, comparisons)
            if loss is not None:
                found[row.trial_id] = loss
    return found


def loss_of(trials: SweepTrials, row: Row, others: Sequence[Row]) -> Effect | None:
    """By how much a trial is less accurate than the most accurate of others, beyond chance; None where it is not."""
    measure = _result_of(trials, trials.rows)
    if measure is None:
        return None
    known = [item for item in others if measure.is_of(item) and not item.independent_ranks and not item.is_stopped]
    best = max(known, key=measure.goodness, default=row)
    return _loss(row, best, measure, trials.until)


def level_text(loss: Effect) -> str:
    """`test accuracy 0.114`."""
    return f"{loss.measure.noun} {loss.pair.row.text(loss.measure.metric)}"


def _loss(row: Row, base: Row, measure: Measure, until: Until, comparisons: Comparisons | None = None) -> Effect | None:
    """A trial against another one, if it loses by the measure."""
    contrast = None if row is base else measure.against(row, base, comparisons)
    if contrast is None:
        return None
    by = 0.0
    if contrast.low is None:
        # One run says nothing of the spread over seeds, but its test samples do: the error of a share of so many.
        variance = _variance_of_samples(row, measure) + _variance_of_samples(base, measure)
        by = max(until.equivalent, 1.96 * math.sqrt(variance))
    if not measure.is_worse(contrast, by):
        return None
    pair = Pair("", describe_configuration(row.factors), "", row, base)
    return Effect(pair, measure, contrast, until)


def _variance_of_samples(row: Row, measure: Measure) -> float:
    """The variance of an accuracy that is a share of test samples; 0 of other results."""
    share = min(max(row.value_of(measure.metric) or 0.0, 0.0), 1.0)
    return share * (1 - share) * resolution_of(measure.metric, row.counted)


def _result_of(trials: SweepTrials, rows: Sequence[Row]) -> Measure | None:
    """The accuracy or the loss that a configuration is chosen for."""
    return next((measure for measure in trials.questions.measures(rows) if measure.is_result), None)


def _is_choice(name: str, rows: Sequence[Row]) -> bool:
    """Whether a field is chosen for what is learned, and is no amount of work: a number with a unit, or of a user."""
    values = [row.factors[name] for row in rows if row.factors[name] is not None]
    if name in _NOT_CHOSEN or not values:
        return False
    if not all(is_number(value) for value in values):
        return True
    specs = field_specs(TrainingConfig) | dict(rows[0].workload.specs())
    return name in specs and not specs[name].setting.unit


def _is_default(row: Row, names: Sequence[str]) -> bool:
    specs = row.workload.specs()
    made = {name: value for name, value in row.factors.items() if name in names and value is not None}
    return all(name in specs and value == specs[name].default for name, value in made.items())
