"""The table a person would have drawn: a row a trial, and only the columns that vary or answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pandas as pd

from dmls_ray.analysis.columns import columns_of
from dmls_ray.analysis.frames import OWN, Results, factors_of, field_names
from dmls_ray.analysis.measures import MEASURES, TIMES
from dmls_ray.analysis.notes import notes_of
from dmls_ray.analysis.stats import Comparison, Estimate, compare, estimate
from dmls_ray.analysis.targets import Reached, time_to_target
from dmls_ray.analysis.written import markdown
from dmls_ray.config import TrialConfig
from dmls_ray.fields import field_specs
from dmls_ray.record import Outcome, RunRecord
from dmls_ray.store import uncollected

_measured = attrgetter(*MEASURES)


@dataclass
class Row:
    """One trial: its varied fields, its measures over the repeats, and how its runs ended."""

    trial_id: str
    factors: dict[str, Any]
    """The fields that vary in this table."""
    records: list[RunRecord]
    measures: dict[str, Estimate] = field(default_factory=dict)
    own: dict[str, Estimate] = field(default_factory=dict)
    """What a training function of the user's own measured."""
    speed_up: Comparison | None = None
    """Against world size 1 without DDP, all else equal."""

    @property
    def world_size(self) -> int:
        return int(self.records[0].config["world_size"])

    @property
    def outcome(self) -> str:
        """`ok`, or how many runs ended in what."""
        counts = Counter(record.outcome.value for record in self.records)
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())

    @property
    def reason(self) -> str:
        """Why the first run that is not ok is not."""
        return next((record.reason for record in self.records if record.outcome is not Outcome.OK), "")

    @property
    def counted(self) -> list[RunRecord]:
        """The runs that its measures are of: those that ended ok, and of them whole ones where there are any."""
        ok = [record for record in self.records if record.outcome is Outcome.OK]
        return [record for record in ok if record.stopped_epoch is None] or ok

    @property
    def timed(self) -> list[RunRecord]:
        """Of these, the ones whose times say something: they had their ranks' resources to themselves."""
        return [record for record in self.counted if record.mode == "bench"]

    def rates(self) -> dict[int, float]:
        """How fast training went by block, of the runs that ended ok: images_per_s, or runs a second where nothing is
        known but how long a run of the same work took.
        """
        rates = self.by_block("images_per_s")
        if rates or OWN in self.records[0].config:
            return rates
        return {block: 1 / taken for block, taken in self.by_block("total_s").items()}

    def level(self, measure: str) -> float | None:
        """The median of a measure; None where it is not known."""
        known = self.estimate(measure)
        return None if known is None else known.median

    def estimate(self, measure: str) -> Estimate | None:
        """A measure over the repeats, the vocabulary's or a user's own; None where it is not known."""
        return self.measures.get(measure) or self.own.get(measure)

    def reached(self) -> Reached | None:
        """When its runs reached their target accuracy; None where they have none."""
        return time_to_target(self.records)

    def by_block(self, measure: str) -> dict[int, float]:
        """A measure by block, of the runs that ended ok."""
        values = {
            item.repeat: item.measures[measure] if measure in item.measures else getattr(item, measure, None)
            for item in self.counted
            if measure not in TIMES or item.mode == "bench"
        }
        return {repeat: value for repeat, value in values.items() if isinstance(value, int | float)}


@dataclass
class Table:
    """A sweep's trials, in the order of their factors."""

    varied: tuple[str, ...]
    rows: list[Row]
    held: str
    """The batch that stays where the ranks or the passes of a step change: `batch_per_rank` or `global_batch`."""
    notes: list[str]

    def frame(self) -> pd.DataFrame:
        """The table as texts, a column a head."""
        columns = columns_of(self)
        cells = [[column.text(row) for column in columns] for row in self.rows]
        return pd.DataFrame(cells, columns=[column.head for column in columns], dtype=object)

    def numbers(self) -> pd.DataFrame:
        """The table as numbers: of each measure the median, the ends of its interval, mean and standard deviation."""
        columns = columns_of(self)
        return pd.DataFrame([{k: v for column in columns for k, v in column.values(row).items()} for row in self.rows])

    def markdown(self) -> str:
        """The table and its notes as Markdown."""
        return f"{markdown(self.frame())}\n\n" + "\n".join(f"- {note}" for note in self.notes) + "\n"

    @property
    def is_own(self) -> bool:
        """Whether a training function of the user's own was swept."""
        return any(OWN in record.config for row in self.rows for record in row.records)

    @property
    def own_measures(self) -> list[str]:
        """What training functions of the user's own measured."""
        return field_names([row.own for row in self.rows])

    def has(self, measure: str) -> bool:
        """Whether any trial has such a measure."""
        return any(measure in row.measures for row in self.rows)


@uncollected()
def make_table(
    results: Results, varied: Sequence[str] | None = None, *, best_by: tuple[str, bool] | None = None
) -> Table:
    """The table of a sweep, or of a search.

    Args:
        results: the runs.
        varied: fields to show as columns; without it, those in which the runs differ.
        best_by: a metric, and whether it is to be small, for the best trial first; without it, by the factors.
    """
    by_trial: dict[str, list[RunRecord]] = {}
    for record in results.records:
        by_trial.setdefault(record.trial_id, []).append(record)
    factors = [factors_of(records[0]) for records in by_trial.values()]
    names = factor_names(factors, varied)
    rows = [_row(each, records, names) for each, records in zip(factors, by_trial.values(), strict=True)]
    rows.sort(key=lambda row: tuple(place_of(name, row.factors[name]) for name in names))
    if best_by is not None:
        metric, minimizes = best_by
        rows.sort(key=lambda row: (row.level(metric) or 0.0) * (1 if minimizes else -1))
        rows.sort(key=lambda row: row.level(metric) is None)
    held = _held_batch(factors, varied or ())
    _add_speed_up(rows, held)
    return Table(varied=names, rows=rows, held=held, notes=notes_of(results, rows, held))


def factor_names(factors: Sequence[Mapping[str, Any]], varied: Sequence[str] | None = None) -> tuple[str, ...]:
    """The fields that tell trials apart: those that were varied, and those in which they differ all the same."""
    known = field_names(factors)
    names = {*(varied or ()), *(name for name in known if len({repr(each.get(name)) for each in factors}) > 1)}
    # A table that shows one batch shows the other.
    if names & {"batch_per_rank", "global_batch", "world_size", "accum_steps"} and "global_batch" in known:
        names |= {"batch_per_rank", "global_batch"}
    if "machines" not in names:
        names.discard("ranks_per_machine")  # it is world_size then
    return tuple(name for name in known if name in names)


def _row(factors: Mapping[str, Any], records: list[RunRecord], names: Sequence[str]) -> Row:
    row = Row(records[0].trial_id, {name: factors.get(name) for name in names}, records)
    ok = row.counted
    timed = [record.mode == "bench" for record in ok]
    for (name, measure), values in zip(MEASURES.items(), zip(*map(_measured, ok), strict=True), strict=False):
        known = [value for value, counts in zip(values, timed, strict=True)
                 if value is not None and (counts or not measure.is_time)]  # fmt: skip
        if known:
            row.measures[name] = estimate(known, measure.quantity)
    for name in field_names(record.measures for record in ok):
        numbers = [value for record in ok if isinstance(value := record.measures.get(name), int | float)]
        if numbers:
            row.own[name] = estimate(numbers)
    return row


def _held_batch(factors: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> str:
    """Which batch stays from one world size, and from one accum_steps, to the next: global_batch (strong scaling) or
    batch_per_rank (weak).
    """
    sizes: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
    for each in factors:
        if OWN not in each and each.get("global_batch") is not None:
            per_rank, together = sizes.setdefault((each["world_size"], each["accum_steps"]), (set(), set()))
            per_rank.add(each["batch_per_rank"])
            together.add(each["global_batch"])
    same_per_rank = len({frozenset(item) for item, _ in sizes.values()}) == 1
    same_together = len({frozenset(item) for _, item in sizes.values()}) == 1
    if "global_batch" in varied:
        return "global_batch"
    return "global_batch" if same_together and not same_per_rank else "batch_per_rank"


def _add_speed_up(rows: Sequence[Row], held: str) -> None:
    """Against world size 1 at the same held batch, all else equal."""
    free = {"world_size", "batch_per_rank", "global_batch"} - {held}

    def rest(row: Row, *besides: str) -> str:
        return repr([value for name, value in row.factors.items() if name not in free and name not in besides])

    bases = {rest(row): row for row in reversed(rows) if row.world_size == 1}
    # One rank talks to nobody: where no backend is told of it, it stands for any.
    lone = [row for row in rows if row.world_size == 1 and not row.factors.get("backend")]
    alone = {rest(row, "backend"): row for row in reversed(lone)}
    for row in rows:
        base = bases.get(rest(row), alone.get(rest(row, "backend"))) if row.world_size > 1 else None
        if base is not None and row.rates() and base.rates():
            row.speed_up = compare(row.rates(), base.rates())


def place_of(name: str, value: Any) -> tuple[int, Any]:
    """Where a value of a field stands in a table: numbers by size; choices in the order of their field, which begins
    with the plain one.
    """
    if value is None:
        return (0, 0)
    spec = field_specs(TrialConfig).get(name)
    choices = spec.choices if spec else ()
    if value in choices:
        return (1, choices.index(value))
    return (1, value) if isinstance(value, int | float) else (2, str(value))
