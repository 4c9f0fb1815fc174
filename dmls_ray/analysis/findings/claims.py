"""`Claim`: a comparison that the question of a sweep is about. A sweep is repeated until these are decided."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dmls_ray.analysis.findings.measures import Measure
from dmls_ray.analysis.findings.sweep_trials import SweepTrials
from dmls_ray.analysis.stats.block_model import Contrast, is_decided, is_rough
from dmls_ray.analysis.trials.axis import Axis
from dmls_ray.analysis.trials.groups import group_by_other_factors
from dmls_ray.analysis.trials.labels import describe_changes, describe_configuration
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.config.until import Until

_MOST_COUNTED = 100_000
"""Repeats beyond which none are counted."""


@dataclass(frozen=True)
class Pair:
    """Two trials that are compared."""

    field: str
    """The field in which they differ; empty if in several."""
    label: str
    """Their names: `batch_per_rank 64 vs 32`."""
    where: str
    """What they share, and other pairs with these names do not: `2 ranks`."""
    row: Row
    base: Row

    @property
    def is_within_trial(self) -> bool:
        """Whether two values of the same runs are compared."""
        return self.row is self.base


@dataclass(frozen=True)
class Claim:
    """Two trials, or two values of the same runs, compared by one measure."""

    pair: Pair
    measure: Measure
    contrast: Contrast

    def is_decided(self, until: Until) -> bool:
        """Whether more repeats have no use."""
        return is_decided(self.contrast, null=self.measure.null, precision=until.within, equivalent=until.equivalent)

    def is_rough(self, until: Until) -> bool:
        """Whether it is decided, and yet hardly says by how much."""
        return is_rough(self.contrast, null=self.measure.null, precision=until.within)

    def repeats_wanted(self, until: Until) -> int | None:
        """About how many repeats decide it: its interval is as narrow as is wanted, or excludes no difference.

        If its noise stays as it is; at most `_MOST_COUNTED`. None without an interval.
        """
        after = self.contrast.half_width_after
        if after is None:
            return None
        wanted = math.log1p(until.within) if self.measure.is_ratio else until.within
        width = max(wanted, self.measure.size(self.contrast))
        counts = range(self.contrast.n + 1, _MOST_COUNTED)
        return counts.start + bisect.bisect_left(counts, -width, key=lambda count: -after(count))


def claims_of(trials: SweepTrials, varied: Sequence[str], changed: Sequence[str] = ()) -> list[Claim]:
    """The comparisons that the question of a sweep is about.

    Neighbours and ends of an axis of numbers, each choice against the default, each number of ranks against the
    smallest, each change against the trial without any; and what a workload compares within runs.

    Args:
        trials: the trials.
        varied: the fields that were given several values.
        changed: fields that were changed one at a time.
    """
    rows = compared_rows(trials)
    if changed:
        return _claims_of_pairs(trials, changed_pairs(rows, changed))
    pairs = [pair for name in varied if name in trials.varied for pair in axis_pairs(trials.axis_of(name, rows))]
    return [*_claims_of_pairs(trials, pairs), *trials.questions.claims_within_trials(trials)]


def claims_against(best: Row, others: Sequence[Row], measures: Sequence[Measure]) -> list[Claim]:
    """The comparisons of some trials with the best one.

    Args:
        best: a trial.
        others: other trials of its sweep.
        measures: what they are compared by.
    """
    pairs = (Pair("", _against(row, best), "", row, best) for row in others)
    return [claim for pair in pairs for claim in _claims(pair, measures)]


def compared_rows(trials: SweepTrials) -> list[Row]:
    """The trials that are compared: those with a run that ended ok, whose ranks trained one model together."""
    return [row for row in trials.rows if row.counted and not row.independent_ranks]


def pair_along(axis: Axis, group: Sequence[Row], row: Row, base: Row) -> Pair:
    """Two trials of a group of an axis."""
    label = f"{axis.noun} {axis.value(row)} vs {axis.value(base)}"
    return Pair(axis.name, label, axis.where(group), row, base)


def axis_pairs(axis: Axis) -> Iterator[Pair]:
    """The pairs of an axis: neighbours and ends of numbers, else each value against the baseline."""
    for group in axis.groups:
        first, *others = group
        if axis.is_ordered:
            compared = [(row, base) for base, row in itertools.pairwise(group)]
            if len(others) > 1:
                compared.append((others[-1], first))
        else:
            compared = [(row, first) for row in others]
        for row, base in compared:
            yield pair_along(axis, group, row, base)


def changed_pairs(rows: Sequence[Row], changed: Sequence[str]) -> Iterator[Pair]:
    """Each trial with a change against the one without any that is equal to it otherwise."""
    groups = group_by_other_factors(rows, changed)
    for group in groups:
        made = {row.trial_id: describe_changes(row, changed) for row in group}
        base = next((row for row in group if not made[row.trial_id]), None)
        if base is None:
            continue
        shared = {name: value for name, value in base.factors.items() if name not in changed}
        where = describe_configuration(shared) if len(groups) > 1 else ""
        for row in group:
            change = made[row.trial_id]
            if change:
                yield Pair(change.partition("=")[0], change, where, row, base)


def _claims_of_pairs(trials: SweepTrials, pairs: Iterator[Pair] | Sequence[Pair]) -> list[Claim]:
    found: dict[tuple[str, str], Pair] = {}
    for pair in pairs:
        found.setdefault((pair.row.trial_id, pair.base.trial_id), pair)
    claims = []
    for pair in found.values():
        claims += _claims(pair, trials.questions.measures([pair.row, pair.base]))
    return claims


def _claims(pair: Pair, measures: Sequence[Measure]) -> list[Claim]:
    claims = []
    for measure in measures:
        contrast = measure.against(pair.row, pair.base)
        if contrast is not None and not contrast.is_once:
            claims.append(Claim(pair, measure, contrast))
    return claims


def _against(row: Row, base: Row) -> str:
    return f"{describe_configuration(row.factors)} vs {describe_configuration(base.factors)}"
