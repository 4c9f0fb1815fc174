"""Two sweeps joined by configuration: how much B differs from A, and whether the difference is beyond doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from dmls_ray.analysis.compare.effect import (
    IN_THESE_SESSIONS,
    Change,
    Unit,
    Way,
    change_of,
    drifts,
    means_of,
    unit_of,
    values_of,
    way_of,
)
from dmls_ray.analysis.compare.join import common_measure, join
from dmls_ray.analysis.compare.provenance_diff import apart_in_time, differences
from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import format_of, label_of, quantity_of, resolution_of, table_metrics
from dmls_ray.analysis.results import Results, field_names
from dmls_ray.analysis.stats.formatting import RATIO, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, bonferroni_level, estimate, is_above, is_below
from dmls_ray.analysis.summary.independent_ranks import describe_independent_ranks
from dmls_ray.analysis.summary.phrases import count_noun, describe_configuration, factor_cells, join_names
from dmls_ray.analysis.table.row import Row
from dmls_ray.util.errors import ConfigError


@dataclass(frozen=True)
class Pair:
    """A configuration that both sweeps have."""

    a: Row
    b: Row
    samples: tuple[dict[str, float], dict[str, float]]
    """The values of A and of B by the name of the sample."""
    change: Change | None
    """None where it did not end ok in both, or its ranks trained apart. The intervals of all pairs, and that over all,
    hold together, at 95%.
    """

    @property
    def name(self) -> str:
        return describe_configuration(self.a.factors)

    @property
    def is_apart(self) -> bool:
        """Whether the ranks of A or of B did not train one model together, so that the two are not compared."""
        return bool(self.a.independent_ranks or self.b.independent_ranks)


@dataclass(frozen=True)
class SweepComparison:
    """The configurations of two sweeps, and how much each differs between them."""

    measure: str
    pairs: Sequence[Pair]
    only: Mapping[str, Sequence[str]]
    """The configurations that A alone, and B alone, has, in words."""
    overall: Change | None
    """By the mean over the configurations that ended ok in both, of each repeat that has them all; None without one."""
    unit: Unit
    """Whether a sample is a repeat, or the mean of a session."""
    samples: tuple[int, int]
    """The number of samples of A, and of B, that have every configuration."""
    origins: Sequence[str]
    """What differs in where, when and with what they were measured."""

    @cached_property
    def compared(self) -> list[Pair]:
        """The configurations that ended ok in both, and whose ranks trained together."""
        return [pair for pair in self.pairs if pair.change]

    @property
    def lost(self) -> list[str]:
        """Configurations that ended ok in A and never in B, although B tried them; they count as slower."""
        return [pair.name for pair in self.pairs if pair.a.counted and not pair.b.counted]

    @property
    def way(self) -> Way:
        return way_of(self.measure)

    @property
    def knows_drift(self) -> bool:
        """Whether its intervals know of what changes from one session to the next, or the measure depends on none."""
        return self.unit == "session" or not drifts(self.measure)

    def slower_by_more_than(self, share: float) -> list[str]:
        """What is slower in B by more than a share of A's speed, beyond doubt: `over all`, or a configuration.

        Beyond doubt is what has its whole interval below 1 - share, in sessions enough to know of the drift between
        them. Where nothing is that much slower, a slowdown is reported all the same at most 1 time in 20.

        Raises:
            ConfigError: the share is out of range, or the measure says nothing of speed.
        """
        self._check(share)
        return [name for name, change in self._changes if self.knows_drift and is_below(change.interval, 1 - share)]

    def not_ruled_out(self, share: float) -> list[str]:
        """What may be slower in B by more than a share of A's speed: `over all`, or a configuration of both.

        Args:
            share: of A's speed.

        Returns:
            Also what was not compared, since its ranks trained apart, and `over all` where nothing was.

        Raises:
            ConfigError: as `slower_by_more_than`.
        """
        self._check(share)
        ruled_out = {
            name for name, change in self._changes if self.knows_drift and is_above(change.interval, 1 - share)
        }
        names = ["over all", *(pair.name for pair in self.pairs if pair.change or pair.is_apart)]
        return [name for name in names if name not in ruled_out]

    @property
    def _changes(self) -> list[tuple[str, Change]]:
        """How B differs over all, and in each configuration."""
        changes = [("over all", self.overall), *((pair.name, pair.change) for pair in self.pairs)]
        return [(name, change) for name, change in changes if change is not None]

    def _check(self, share: float) -> None:
        if not 0 <= share < 1:
            raise ConfigError(f"--fail-if-slower {share:.4g} is out of range; give 0% or more and less than 100%.")
        if self.way != "speed":
            speeds = ", ".join(name for name in table_metrics() if way_of(name) == "speed")
            raise ConfigError(
                f"--fail-if-slower is about speed and --measure {self.measure} is none; give one of {speeds}."
            )

    def frame(self) -> pd.DataFrame:
        """A row a configuration of both, as texts."""
        head, form, quantity = label_of(self.measure), format_of(self.measure), quantity_of(self.measure)
        change_head = {"speed": "speed B / A", "amount": "B / A", "difference": "B - A"}[self.way]
        rows = []
        for pair in self.pairs:
            resolution = _resolution(self.measure, pair.a, pair.b)
            means = [
                estimate(list(values.values()), quantity, resolution=resolution, is_once=row.is_once(self.measure))
                if values
                else None
                for row, values in zip((pair.a, pair.b), pair.samples, strict=True)
            ]
            cells = {
                f"{side} {head} [95%]": format_interval(value, form) for side, value in zip("AB", means, strict=True)
            }
            cells[f"{change_head} [95% of all rows]"] = self._format(pair.change)
            cells["n"] = ", ".join(str(len(values)) for values in pair.samples)
            cells["verdict"] = pair.change.verdict if pair.change else "independent ranks" if pair.is_apart else ""
            cells["outcome"] = pair.a.outcome if pair.a.outcome == pair.b.outcome else _outcomes(pair)
            rows.append(factor_cells(pair.a.factors, other_headers=cells) | cells)
        return pd.DataFrame(rows, columns=field_names(rows), dtype=object)

    @property
    def sentence(self) -> str:
        """The verdict over all configurations."""
        if not self.compared:
            together = " with ranks that trained together" if any(pair.is_apart for pair in self.pairs) else ""
            return f"No configuration ended ok in both{together}, so nothing can be compared."
        count = len(self.compared)
        if self.overall is None:
            return f"No {self.unit} has all {count} configurations ok, so nothing is said over all. {self._verdicts()}"
        over = f"by {label_of(self.measure)} over {count_noun(count, 'configuration')}"
        counts = f"n={' and '.join(map(str, self.samples))}" + (" sessions" if self.unit == "session" else "")
        if self._is_same():
            return f"B is the same as A {over}, run by run ({counts})."
        unit = {"speed": " times as fast", "amount": " times as much", "difference": ""}[self.way]
        verdict, changes = self.overall.verdict, f"{self._format(self.overall)}{unit} ({counts})."
        if verdict == "unknown":
            return (
                f"B against A {over}: {changes} Whether that is more than chance cannot be said below "
                f"{MIN_REPEATS} {self.unit}s of each."
            )
        low = self.overall.interval.low
        if verdict == "not distinguished" and self.way == "speed" and low is not None:
            by = f" by {_percent(1 - low)}" if self.knows_drift else ""
            changes += f" A slowdown{by} is not ruled out."
        as_what = {
            "not distinguished": "is not distinguished from A",
            IN_THESE_SESSIONS: f"is {IN_THESE_SESSIONS} from A",
        }.get(verdict, f"is {verdict} than A")
        return f"B {as_what} {over}: {changes} {self._verdicts()}".rstrip()

    @property
    def notes(self) -> list[str]:
        """How the numbers came about, what is not in both, and what else differs."""
        notes = [self._method()]
        if not self.knows_drift:
            notes.append(
                f"{label_of(self.measure)} may drift from one session to the next, which no interval here knows of: "
                f"that takes {MIN_REPEATS} sessions of each, in turn. To compare two versions, make them values of a "
                "field of one sweep, whose blocks hold both."
            )
        least = min((len(values) for pair in self.compared for values in pair.samples), default=MIN_REPEATS)
        if least < MIN_REPEATS and self.unit == "session" and self.way == "amount":
            notes.append(
                "Resident memory is of processes that serve a whole session, so a session is one sample, whatever its "
                f"repeats (here n={least}): run both with --isolation per_run, or in {MIN_REPEATS} sessions each."
            )
        elif least < MIN_REPEATS and self.measure not in EXACT:
            way_out = "run both with --repeats 5" if self.unit == "repeat" else "measure both in more sessions"
            notes.append(
                f"Below {MIN_REPEATS} {self.unit}s (here n={least}) a verdict is unknown, and no slowdown is beyond "
                f"doubt: {way_out}."
            )
        for side, names in self.only.items():
            if names:
                notes.append(f"Only in {side}: {count_noun(len(names), 'configuration')} ({join_names(names)}).")
        ended = [f"{pair.name}: {_outcomes(pair)}" for pair in self.pairs if pair.a.outcomes != pair.b.outcomes]
        if ended:
            notes.append(f"Outcomes differ: {join_names(ended)}.")
        apart = [pair for pair in self.pairs if pair.is_apart]
        if apart:
            causes = {
                side: describe_independent_ranks([row for row in rows if row.independent_ranks])
                for side, rows in (("A", [pair.a for pair in apart]), ("B", [pair.b for pair in apart]))
            }
            notes += [f"Not compared: in {side}, {_lowered(text)}" for side, texts in causes.items() for text in texts]
        return [*notes, *self.origins]

    def _format(self, change: Change | None) -> str:
        form = with_sign(format_of(self.measure)) if self.way == "difference" else RATIO
        null = 0.0 if self.way == "difference" else 1.0
        return format_interval(change.interval, form, null=null) if change else ""

    def _method(self) -> str:
        count = len(self.compared)
        is_paired = self.way == "difference" and self.unit == "repeat"
        method = {
            "speed": "Ratios are of geometric means, with Welch's interval on logarithms; more than 1 is faster.",
            "amount": "Ratios are of geometric means, with Welch's interval on logarithms.",
            "difference": "Differences are paired by repeat, which has one seed in both, with Student's interval."
            if is_paired
            else "Differences are of means, with Welch's interval.",
        }[self.way]
        if count < 2:
            return method
        row, overall = (100 * level for level in _levels(count))
        return (
            f"{method} All intervals hold together at 95%: that over all is of {overall:.4g}%, each of the {count} "
            f"rows of {row:.4g}% (Bonferroni)."
        )

    def _is_same(self) -> bool:
        """Whether A and B came to the same, bit for bit."""
        return self.way == "difference" and all(
            a.items() <= b.items() for a, b in (pair.samples for pair in self.compared)
        )

    def _verdicts(self) -> str:
        """How many configurations have which verdict."""
        if len(self.compared) < 2:
            return ""
        verdicts = Counter(pair.change.verdict for pair in self.compared if pair.change)
        return f"Each for itself: {', '.join(f'{count} {verdict}' for verdict, count in verdicts.most_common())}."


def compare_sweeps(a: Results, b: Results, *, measure: str | None = None) -> SweepComparison:
    """Join two sweeps by configuration, and compare B with A.

    Args:
        a: the baseline.
        b: the sweep that is compared with it.
        measure: a registered metric, or a custom metric; without it images_per_s
            where both have it, else total_s.

    Raises:
        ConfigError: the sweeps have no configuration in common, or not both report the measure.
    """
    joined = join(a, b)
    name = common_measure(a, b, measure)
    unit = unit_of(a, b, name)
    samples = [(values_of(row_a, name, unit), values_of(row_b, name, unit)) for row_a, row_b in joined.both]
    together = [not (row_a.independent_ranks or row_b.independent_ranks) for row_a, row_b in joined.both]
    compared = [values for values, is_together in zip(samples, together, strict=True) if is_together and all(values)]
    level, level_over_all = _levels(len(compared))
    resolutions = [_resolution(name, *rows) for rows in joined.both]
    once = [row_a.is_once(name) and row_b.is_once(name) for row_a, row_b in joined.both]
    changes = [
        change_of(*values, name, level, resolution, unit=unit, is_once=is_once) if is_together else None
        for values, resolution, is_once, is_together in zip(samples, resolutions, once, together, strict=True)
    ]
    pairs = [Pair(*rows, values, change) for rows, values, change in zip(joined.both, samples, changes, strict=True)]
    means_a, means_b = (means_of([values[side] for values in compared], name) for side in (0, 1))
    # What was run in one sweep alone makes no difference between them.
    common_a, common_b = (
        side.of([record for rows in joined.both for record in rows[index].records]) for index, side in enumerate((a, b))
    )
    return SweepComparison(
        measure=name,
        pairs=pairs,
        only=joined.only,
        overall=change_of(
            means_a,
            means_b,
            name,
            level_over_all,
            max(resolutions) / max(len(compared), 1),
            unit=unit,
            is_once=all(once),
        ),
        unit=unit,
        samples=(len(means_a), len(means_b)),
        origins=differences(common_a, common_b)
        + (apart_in_time(common_a, common_b) if way_of(name) == "speed" else []),
    )


def _levels(count: int) -> tuple[float, float]:
    """The confidence levels of the interval of each of so many configurations, and of that over all."""
    if count < 2:
        return bonferroni_level(1), bonferroni_level(1)  # they are the same
    return bonferroni_level(2 * count), bonferroni_level(2)


def _percent(share: float) -> str:
    """A share above 0, which is not written as 0."""
    percent = 100 * share
    return f"{percent:.1f}%" if percent >= 0.05 else f"{percent:.1g}%"


def _lowered(text: str) -> str:
    return f"{text[:1].lower()}{text[1:]}"


def _resolution(measure: str, a: Row, b: Row) -> float:
    return resolution_of(measure, [*a.counted, *b.counted])


def _outcomes(pair: Pair) -> str:
    return f"{pair.a.outcome} in A, {pair.b.outcome} in B"
