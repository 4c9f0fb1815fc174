"""`Claim`: one comparison that a sweep's answer makes. A sweep is repeated until these are decided."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from dmls_ray.analysis.metrics import is_time
from dmls_ray.analysis.stats.block_model import Contrast, is_decided
from dmls_ray.analysis.stats.formatting import ACCURACY, RATIO, format_interval, with_sign
from dmls_ray.analysis.summary.phrases import describe_configuration
from dmls_ray.analysis.table.axis_groups import group_by_other_factors, groups_along_axis
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.config.until import Until

RANKS = ("world_size", "machines", "ranks_per_machine")
"""Axes of which each value is compared with the smallest."""

_ACCURACIES = ("test_accuracy",)


@dataclass(frozen=True)
class Claim:
    """A trial against another one, by one measure."""

    axis: str
    """The field in which they differ; empty if in several."""
    row: Row
    base: Row
    measure: str
    """`speed`, or the name of a metric."""
    contrast: Contrast
    null: float
    """The value that means no difference: 1 of ratios, 0 of differences."""

    def is_decided(self, until: Until) -> bool:
        """Whether more repeats have no use."""
        return is_decided(self.contrast, null=self.null, precision=until.within, equivalent=until.equivalent)

    def repeats_wanted(self, until: Until) -> int | None:
        """About how many repeats decide it: its interval is as narrow as is wanted, or excludes no difference.

        The width of an interval falls with the square root of their number. None without an interval.
        """
        centre, half_width = self.contrast.centre, self.contrast.half_width
        if not half_width or not math.isfinite(half_width):
            return None
        wanted = math.log1p(until.within) if self.null else until.within
        apart = abs(math.log(centre) if self.null else centre)
        return math.ceil(self.contrast.n * (half_width / max(wanted, apart)) ** 2)

    @property
    def text(self) -> str:
        """`batch_per_rank 64 against 32: speed 1.03 [0.97, 1.10]`, with what distinguishes these two from others."""
        value = format_interval(self.contrast, RATIO if self.null else with_sign(ACCURACY), null=self.null)
        if not self.axis:
            names = (describe_configuration(item.factors) for item in (self.row, self.base))
            return f"{' against '.join(names)}: {self.measure} {value}"
        both = {*self.row.factors.items()} & {*self.base.factors.items()}
        where = ", ".join(f"{name} {value}" for name, value in self.row.factors.items() if (name, value) in both)
        pair = f"{self.axis} {self.row.factors[self.axis]} against {self.base.factors[self.axis]}"
        return f"{pair}{where and f' at {where}'}: {self.measure} {value}"


def claims_of(table: Table, varied: Sequence[str], changed: Sequence[str] = ()) -> list[Claim]:
    """The comparisons that the answer of a sweep makes.

    Neighbours and ends of an axis of numbers, each choice against the default, each number of ranks against the
    smallest, each change against the trial without any.

    Args:
        table: the trials.
        varied: the fields that were given several values.
        changed: fields that were changed one at a time.
    """
    found: dict[tuple[str, str], tuple[str, Row, Row]] = {}
    for axis, row, base in _pairs(table, varied, changed):
        found.setdefault((row.trial_id, base.trial_id), (axis, row, base))
    return [claim for pair in found.values() for claim in _claims(*pair)]


def claims_against(best: Row, others: Sequence[Row], measures: Collection[str]) -> list[Claim]:
    """The comparisons of some trials with the best one.

    Args:
        best: a trial.
        others: other trials of its table.
        measures: what they are compared by; empty for all measures.
    """
    claims = (claim for row in others for claim in _claims("", row, best))
    return [claim for claim in claims if not measures or claim.measure in measures]


def _pairs(table: Table, varied: Sequence[str], changed: Sequence[str]) -> Iterator[tuple[str, Row, Row]]:
    rows = [row for row in table.rows if row.counted and not row.independent_ranks]
    if changed:
        for group in group_by_other_factors(rows, changed):
            yield from _changes(group, changed)
        return
    for axis in varied:
        if axis not in table.varied:
            continue
        for group in groups_along_axis(rows, axis, table.fixed_batch_field):
            values = [row.factors[axis] for row in group]
            if axis in RANKS or not _are_numbers(values):
                base = _baseline(group, axis)
                yield from ((axis, row, base) for row in group if row is not base)
            else:
                ordered = sorted(group, key=lambda row: row.factors[axis])
                yield from ((axis, row, base) for base, row in itertools.pairwise(ordered))
                if len(ordered) > 2:
                    yield axis, ordered[-1], ordered[0]


def _changes(rows: Sequence[Row], changed: Sequence[str]) -> Iterator[tuple[str, Row, Row]]:
    specs = rows[0].workload.specs() if rows else {}
    made = [[name for name in changed if row.factors.get(name) != specs[name].default] for row in rows]
    base = next((row for row, names in zip(rows, made, strict=True) if not names), None)
    for row, names in zip(rows, made, strict=True):
        if base is not None and names:
            yield names[0], row, base


def _baseline(group: Sequence[Row], axis: str) -> Row:
    """The fewest ranks, or the choice that is the default; else the first."""
    if axis in RANKS:
        return min(group, key=lambda row: row.factors[axis] or 1)
    spec = group[0].workload.specs().get(axis)
    default = None if spec is None else spec.default
    return next((row for row in group if row.factors[axis] == default), group[0])


def _are_numbers(values: Sequence[object]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _claims(axis: str, row: Row, base: Row) -> Iterator[Claim]:
    speed, duration = row.speed_against(base), row.comparisons.ratio(row, base, "total_s")
    if speed is not None:
        yield Claim(axis, row, base, "speed", speed, 1)
    elif duration is not None:
        yield Claim(axis, row, base, "seconds a run", duration, 1)
    for metric in _ACCURACIES:
        if (more := row.difference_from(base, metric)) is not None:
            yield Claim(axis, row, base, metric, more, 0)
    for metric in row.custom_metrics:
        both = [*row.by_block(metric).values(), *base.by_block(metric).values()]
        if metric in base.custom_metrics and min(both) > 0 and not is_time(metric):
            ratio = row.comparisons.ratio(row, base, metric)
            if ratio is not None:
                yield Claim(axis, row, base, metric, ratio, 1)
