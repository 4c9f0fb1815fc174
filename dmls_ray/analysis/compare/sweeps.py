"""Two sweeps side by side, joined by configuration: how much B differs from A, and whether that is beyond doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from dmls_ray.analysis.compare.effect import Change, Unit, Way, change_of, means_of, unit_of, values_of, way_of
from dmls_ray.analysis.compare.join import common_measure, join
from dmls_ray.analysis.compare.provenance_diff import apart_in_time, differences
from dmls_ray.analysis.metrics import TABLE_METRICS, format_of, label_of, quantity_of
from dmls_ray.analysis.results import Results, field_names
from dmls_ray.analysis.stats.formatting import RATIO, NumberFormat, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, bonferroni_level, estimate
from dmls_ray.analysis.summary.phrases import count_noun, describe_configuration, factor_cells, join_names
from dmls_ray.analysis.table.row import Row
from dmls_ray.util.errors import ConfigError


@dataclass(frozen=True)
class Pair:
    """A configuration that both sweeps have."""

    a: Row
    b: Row
    change: Change | None
    """None where it did not end ok in both. The intervals of all pairs hold together, at 95%."""

    @property
    def name(self) -> str:
        return describe_configuration(self.a.factors)


@dataclass(frozen=True)
class SweepComparison:
    """What became of A's configurations in B."""

    measure: str
    pairs: Sequence[Pair]
    only_a: Sequence[str]
    only_b: Sequence[str]
    overall: Change | None
    """By the mean over the configurations that ended ok in both, of each repeat that has them all; None without one."""
    unit: Unit
    """What counts as one sample."""
    samples: tuple[int, int]
    """How many of them there are over all, of A and of B."""
    origins: Sequence[str]
    """What differs in where, when and with what they were measured."""

    @cached_property
    def compared(self) -> list[Pair]:
        """The configurations that ended ok in both."""
        return [pair for pair in self.pairs if pair.change]

    @property
    def lost(self) -> list[str]:
        """Configurations that ended ok in A, and that B tried and never has ok: what does not run is not as fast."""
        return [pair.name for pair in self.pairs if pair.a.counted and not pair.b.counted]

    @property
    def way(self) -> Way:
        return way_of(self.measure)

    def slower_by_more_than(self, share: float) -> list[str]:
        """What is slower in B by more than a share of A's speed, beyond doubt: `over all`, or a configuration.

        Beyond doubt is what has its whole interval below 1 - share, that of a configuration being as wide as it must
        be for all of them to hold together. Where nothing is that much slower, a slowdown is reported all the same at
        most 1 time in 20, as far as repeats can know: they know nothing of what drifted from one sweep to the other.

        Raises:
            ConfigError: the share is out of range, or the measure says nothing of speed.
        """
        if not 0 <= share < 1:
            raise ConfigError(f"--fail-if-slower {share:.4g} is out of range; give 0% or more and less than 100%.")
        if self.way != "speed":
            speeds = ", ".join(name for name in TABLE_METRICS if way_of(name) == "speed")
            raise ConfigError(
                f"--fail-if-slower is about speed and --measure {self.measure} is none; give one of {speeds}."
            )
        changes = [("over all", self.overall), *((pair.name, pair.change) for pair in self.compared)]
        return [name for name, change in changes
                if change and change.interval.high is not None and change.interval.high < 1 - share]  # fmt: skip

    def frame(self) -> pd.DataFrame:
        """A row a configuration of both, as texts."""
        head, form = label_of(self.measure), format_of(self.measure)
        change = {"speed": "speed B / A", "amount": "B / A", "difference": "B - A"}[self.way]
        rows = []
        for pair in self.pairs:
            cells: dict[str, str] = {}
            known = [values_of(row, self.measure, self.unit) for row in (pair.a, pair.b)]
            for side, values in zip("AB", known, strict=True):
                cells[f"{side} {head} [95%]"] = (
                    format_interval(estimate(list(values.values()), quantity_of(self.measure)), form) if values else ""
                )
            cells[f"{change} [95% of all rows]"] = (
                format_interval(pair.change.interval, self._form) if pair.change else ""
            )
            cells["n"] = ", ".join(str(len(values)) for values in known)
            cells["verdict"] = pair.change.verdict if pair.change else ""
            same = pair.a.outcome == pair.b.outcome
            cells["outcome"] = pair.a.outcome if same else f"{pair.a.outcome} in A, {pair.b.outcome} in B"
            rows.append(factor_cells(pair.a.factors, other_headers=cells) | cells)
        return pd.DataFrame(rows, columns=field_names(rows), dtype=object)

    @property
    def sentence(self) -> str:
        """The verdict over all configurations."""
        if not self.compared:
            return "No configuration ended ok in both, so nothing can be compared."
        if self.overall is None:
            count = len(self.compared)
            return f"No {self.unit} has all {count} configurations ok, so nothing is said over all. {self._each()}"
        verdict, change = self.overall.verdict, format_interval(self.overall.interval, self._form)
        over = f"by {self.measure} over {count_noun(len(self.compared), 'configuration')}"
        counts = f"n={' and '.join(map(str, self.samples))}" + (" sessions" if self.unit == "session" else "")
        words = {"speed": f"{change} times as fast", "amount": f"{change} times as much", "difference": change}
        changes = words[self.way]
        if self._is_same():
            return f"B is the same as A {over}, run by run ({counts})."
        if verdict == "unknown":
            return (
                f"B against A {over}: {changes} ({counts}). Whether that is more than chance cannot be said below "
                f"{MIN_REPEATS} {self.unit}s of each."
            )
        as_what = "indistinguishable from A" if verdict == "indistinguishable" else f"{verdict} than A"
        return f"B is {as_what} {over}: {changes} ({counts}). {self._open()}{self._each()}".rstrip()

    @property
    def notes(self) -> list[str]:
        """How the numbers came about, what is not in both, and what else differs."""
        notes = [self._method()]
        rows = [row for pair in self.compared for row in (pair.a, pair.b)]
        least = min((len(values_of(row, self.measure, self.unit)) for row in rows), default=MIN_REPEATS)
        if least < MIN_REPEATS and self.unit == "session" and self.way == "amount":
            notes.append(
                "Resident memory is of processes that serve a whole session, so a session is one sample, whatever its "
                f"repeats (here n={least}): run both with --isolation per_run, or in {MIN_REPEATS} sessions each."
            )
        elif least < MIN_REPEATS:
            notes.append(
                f"Below {MIN_REPEATS} {self.unit}s (here n={least}) a verdict is unknown, and no slowdown is beyond "
                "doubt: run both with --repeats 5."
            )
        for side, names in (("A", self.only_a), ("B", self.only_b)):
            if names:
                notes.append(f"Only in {side}: {count_noun(len(names), 'configuration')} ({join_names(names)}).")
        ended = [f"{pair.name}: {pair.a.outcome} in A, {pair.b.outcome} in B"
                 for pair in self.pairs if _kinds(pair.a) != _kinds(pair.b)]  # fmt: skip
        if ended:
            notes.append(f"Outcomes differ: {join_names(ended)}.")
        return [*notes, *self.origins]

    @property
    def _form(self) -> NumberFormat:
        if self.way != "difference":
            return RATIO
        return with_sign(format_of(self.measure))

    def _method(self) -> str:
        count = len(self.compared)
        method = {
            "speed": "Ratios are of geometric means, with Welch's interval on logarithms; more than 1 is faster.",
            "amount": "Ratios are of geometric means, with Welch's interval on logarithms.",
            "difference": "Differences are paired by repeat, which has one seed in both, with Student's interval.",
        }[self.way]
        if count < 2:
            return method
        each = 100 * bonferroni_level(count)
        return f"{method} Those of the {count} rows hold together at 95%: each is of {each:.4g}% (Bonferroni)."

    def _is_same(self) -> bool:
        """Whether A and B came to the same, bit for bit."""
        return self.way == "difference" and all(
            row_a == {repeat: row_b.get(repeat) for repeat in row_a}
            for row_a, row_b in (
                (values_of(pair.a, self.measure), values_of(pair.b, self.measure)) for pair in self.compared
            )
        )

    def _open(self) -> str:
        """What a verdict of indistinguishable does not rule out."""
        assert self.overall is not None
        low = self.overall.interval.low
        if self.overall.verdict != "indistinguishable" or self.way != "speed" or low is None:
            return ""
        return f"A slowdown by {1 - low:.1%} is not ruled out. "

    def _each(self) -> str:
        """How many configurations have which verdict."""
        if len(self.compared) < 2:
            return ""
        verdicts = Counter(pair.change.verdict for pair in self.compared if pair.change)
        return f"Each for itself: {', '.join(f'{count} {verdict}' for verdict, count in verdicts.most_common())}."


def compare_sweeps(a: Results, b: Results, *, measure: str | None = None) -> SweepComparison:
    """Join two sweeps by configuration, and set B against A.

    Args:
        a: what is compared against.
        b: what is compared.
        measure: a registered metric, or a custom metric; without it images_per_s
            where both have it, else total_s.

    Raises:
        ConfigError: there is nothing to compare, or nothing that this measure says of it.
    """
    joined = join(a, b)
    name = common_measure(a, b, measure)
    unit = unit_of(a, b, name)
    values = [(values_of(row_a, name, unit), values_of(row_b, name, unit)) for row_a, row_b in joined.both]
    changes = [pair for pair in values if all(pair)]
    pairs = [
        Pair(row_a, row_b, change_of(of_a, of_b, name, bonferroni_level(len(changes))))
        for (row_a, row_b), (of_a, of_b) in zip(joined.both, values, strict=True)
    ]
    whole_a, whole_b = (means_of([pair[side] for pair in changes], name) for side in (0, 1))
    # What was run in one sweep alone makes no difference between them.
    sides = [
        side.of([record for pair in joined.both for record in pair[index].records]) for index, side in enumerate((a, b))
    ]
    return SweepComparison(
        measure=name,
        pairs=pairs,
        only_a=joined.only_a,
        only_b=joined.only_b,
        overall=change_of(whole_a, whole_b, name, 0.95),
        unit=unit,
        samples=(len(whole_a), len(whole_b)),
        origins=differences(*sides) + (apart_in_time(*sides) if way_of(name) == "speed" else []),
    )


def _kinds(row: Row) -> set[str]:
    return {record.outcome.value for record in row.records}
