"""`Claim`: one comparison that a sweep's answer makes. A sweep is repeated until these are decided."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dmls_ray.analysis.stats.block_model import Contrast, is_decided, is_rough
from dmls_ray.analysis.summary.axis import Axis
from dmls_ray.analysis.summary.measures import Measure
from dmls_ray.analysis.summary.phrases import describe_changes, describe_configuration
from dmls_ray.analysis.table.axis_groups import group_by_other_factors
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.config.until import Until

_MOST_COUNTED = 100_000
"""Repeats beyond which none are counted."""


@dataclass(frozen=True)
class Claim:
    """A trial against another one, by one measure."""

    axis: str
    """The field in which they differ; empty if in several."""
    pair: str
    """Their names: `batch_per_rank 64 against 32 on 2 ranks`."""
    row: Row
    base: Row
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
        centre, after = self.contrast.centre, self.contrast.half_width_after
        if after is None:
            return None
        is_ratio = bool(self.measure.null)
        wanted = math.log1p(until.within) if is_ratio else until.within
        apart = abs(math.log(centre) if is_ratio else centre)
        counts = range(self.contrast.n + 1, _MOST_COUNTED)
        return counts.start + bisect.bisect_left(counts, -max(wanted, apart), key=lambda count: -after(count))

    @property
    def is_within_trial(self) -> bool:
        """Whether it compares two values of the same runs, not two trials."""
        return self.row is self.base

    @property
    def text(self) -> str:
        """`batch_per_rank 64 against 32 on 2 ranks: speed 1.03x [0.97, 1.10]`."""
        return f"{self.pair}: {self.measure.topic} {self.measure.effect(self.contrast)}"


def claims_of(table: Table, varied: Sequence[str], changed: Sequence[str] = ()) -> list[Claim]:
    """The comparisons that the answer of a sweep makes.

    Neighbours and ends of an axis of numbers, each choice against the default, each number of ranks against the
    smallest, each change against the trial without any; and what a workload compares within runs.

    Args:
        table: the trials.
        varied: the fields that were given several values.
        changed: fields that were changed one at a time.
    """
    found: dict[tuple[str, str], _Pair] = {}
    for pair in _pairs(table, varied, changed):
        found.setdefault((pair.row.trial_id, pair.base.trial_id), pair)
    of_trials = [
        claim for pair in found.values() for claim in _claims(pair, table.presentation.measures([pair.row, pair.base]))
    ]
    return of_trials if changed else [*of_trials, *table.presentation.claims_within_trials(table)]


def claims_against(best: Row, others: Sequence[Row], measures: Sequence[Measure]) -> list[Claim]:
    """The comparisons of some trials with the best one.

    Args:
        best: a trial.
        others: other trials of its table.
        measures: what they are compared by.
    """
    return [claim for row in others for claim in _claims(_Pair("", _against(row, best), row, best), measures)]


class _Pair(NamedTuple):
    """Two trials that are compared."""

    axis: str
    text: str
    row: Row
    base: Row


def _pairs(table: Table, varied: Sequence[str], changed: Sequence[str]) -> Iterator[_Pair]:
    rows = [row for row in table.rows if row.counted and not row.independent_ranks]
    if changed:
        for group in group_by_other_factors(rows, changed):
            yield from _changes(group, changed)
        return
    for name in varied:
        if name not in table.varied:
            continue
        axis = Axis.of(table, name, rows)
        for trials in axis.groups:
            for row, base in _compared(axis, trials):
                text = f"{axis.subject(row)} against {axis.value(base)}{axis.place(trials)}"
                yield _Pair(name, text, row, base)


def _compared(axis: Axis, group: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    first, *others = group
    if not axis.is_ordered:
        yield from ((row, first) for row in others)
        return
    yield from ((row, base) for base, row in itertools.pairwise(group))
    if len(others) > 1:
        yield others[-1], first


def _changes(rows: Sequence[Row], changed: Sequence[str]) -> Iterator[_Pair]:
    made = [describe_changes(row, changed) for row in rows]
    base = next((row for row, change in zip(rows, made, strict=True) if not change), None)
    for row, change in zip(rows, made, strict=True):
        if base is not None and change:
            yield _Pair(change.partition("=")[0], change, row, base)


def _against(row: Row, base: Row) -> str:
    return " against ".join(describe_configuration(item.factors) for item in (row, base))


def _claims(pair: _Pair, measures: Sequence[Measure]) -> Iterator[Claim]:
    for measure in measures:
        contrast = measure.against(pair.row, pair.base)
        if contrast is not None and not contrast.is_once:
            yield Claim(pair.axis, pair.text, pair.row, pair.base, measure, contrast)
