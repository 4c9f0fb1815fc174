"""A sweep's trials and what is known of each: the rows of a table, and its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from dmls_ray.analysis.export.text_tables import markdown, markdown_text
from dmls_ray.analysis.metrics import is_time
from dmls_ray.analysis.results import field_names
from dmls_ray.analysis.stats.intervals import Comparison, Estimate, compare
from dmls_ray.analysis.stats.time_to_target import TimeToTarget, time_to_target
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import hardware_key
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import workload_of

if TYPE_CHECKING:
    from dmls_ray.analysis.presentation import Presentation


@dataclass
class Row:
    """One trial: its varied fields, its measures over the repeats, and how its runs ended."""

    trial_id: str
    factors: dict[str, Any]
    """The fields that vary in this table."""
    records: list[RunRecord]
    estimates: dict[str, Estimate] = field(default_factory=dict)
    custom_metrics: dict[str, Estimate] = field(default_factory=dict)
    """Metrics without a field of a record."""
    speed_up: Comparison | None = None
    """Against world size 1 without DDP, all else equal; where images are turned grey, against the Python loops."""

    @property
    def workload(self) -> Workload:
        """What its runs run."""
        return workload_of(self.records[0].config)

    @property
    def world_size(self) -> int:
        return int(self.records[0].config["world_size"])

    @cached_property
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

    @cached_property
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
        return self.by_block("images_per_s") or self._runs_per_s()

    def speed_against(self, base: Row, *, level: float = 0.95) -> Comparison | None:
        """How fast this trial is against another one, paired by the blocks in which both ran on one machine and device;
        None where there are none, or nothing says how fast both are.

        Args:
            base: the other one.
            level: how often the interval is to hold the truth.
        """
        rates, baseline_rates = self.by_block("images_per_s"), base.by_block("images_per_s")
        if not (rates and baseline_rates):
            # A rate is not compared with a duration: fall back to runs per second for both.
            rates, baseline_rates = self._runs_per_s(), base._runs_per_s()
        together = self.in_one_place_with(base)
        shared = {block for block in together if rates.get(block, 0) > 0 and baseline_rates.get(block, 0) > 0}
        return compare({block: rates[block] for block in shared}, baseline_rates, level=level)

    def in_one_place_with(self, other: Row) -> set[int]:
        """The blocks in which both ran on the same machine and device; other times are not comparable."""
        places, other_places = self._places(), other._places()
        return {block for block in places.keys() & other_places.keys() if places[block] == other_places[block]}

    def _runs_per_s(self) -> dict[int, float]:
        """Empty where runs may differ in their work."""
        if not self.workload.durations_compare:
            return {}
        return {block: 1 / taken for block, taken in self.by_block("total_s").items() if taken > 0}

    def _places(self) -> dict[int, tuple[Any, ...]]:
        """Where each block ran; the device does not count where it is what was varied."""
        return {
            record.repeat: (
                *hardware_key(record.machine),
                record.device if record.config.get("device", "auto") == "auto" else "",
            )
            for record in self.counted
        }

    def level(self, measure: str) -> float | None:
        """The median of a measure; None where it is not known."""
        known = self.estimate(measure)
        return None if known is None else known.median

    def estimate(self, measure: str) -> Estimate | None:
        """A metric over the repeats, registered or custom; None where it is not known."""
        return self.estimates.get(measure) or self.custom_metrics.get(measure)

    def reached(self) -> TimeToTarget | None:
        """When its runs reached their target accuracy; None where they have none."""
        return time_to_target(self.records)

    def by_block(self, measure: str) -> dict[int, float]:
        """A measure by block, of the runs that ended ok."""
        anywhere = not is_time(measure)
        values = {
            item.repeat: item.measures[measure] if measure in item.measures else getattr(item, measure, None)
            for item in self.counted
            if anywhere or item.mode == "bench"
        }
        return {repeat: value for repeat, value in values.items() if isinstance(value, int | float)}


@dataclass(frozen=True)
class Column:
    """One column: what it says of a trial, in words and in numbers."""

    head: str
    text: Callable[[Row], str]
    values: Callable[[Row], dict[str, Any]]
    """Name -> number, for who reads the table by a program."""


def dedupe_headers(heads: Sequence[str]) -> list[str]:
    """Distinct headers: a field with the name of another column gets the prefix `config_`."""
    named: list[str] = []
    for head in reversed(heads):  # what was varied stands first, and gives way
        while head in named:
            head = f"config_{head}"
        named.append(head)
    return named[::-1]


NoteKind = Literal["measured_on", "comparability", "baseline", "method", "scaled", "outcome", "unfinished"]


@dataclass(frozen=True)
class Note:
    """A sentence below a table."""

    kind: NoteKind
    text: str
    about: str = ""
    """The fact in it that other texts quote: of `measured_on` the hardware, versions and days."""


@dataclass
class Table:
    """A sweep's trials, in the order of their factors."""

    varied: tuple[str, ...]
    rows: list[Row]
    fixed_batch_field: str
    """The batch that stays where the ranks or the passes of a step change: `batch_per_rank` or `global_batch`."""
    presentation: Presentation
    """What its workload adds to it, to figures and to sentences."""
    typed_notes: list[Note] = field(default_factory=list)
    """What its reader must know."""
    columns: list[Column] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """The texts of its notes."""
        return [note.text for note in self.typed_notes]

    def frame(self) -> pd.DataFrame:
        """The table as texts, a column a head."""
        cells = [[column.text(row) for column in self.columns] for row in self.rows]
        return pd.DataFrame(cells, columns=dedupe_headers([column.head for column in self.columns]), dtype=object)

    def numbers(self) -> pd.DataFrame:
        """The table as numbers: of each measure the median, the ends of its interval, mean and standard deviation."""
        values = [[item for column in self.columns for item in column.values(row).items()] for row in self.rows]
        heads = [name for name, _ in values[0]] if values else []
        return pd.DataFrame([[value for _, value in values] for values in values], columns=dedupe_headers(heads))

    def markdown(self) -> str:
        """The table and its notes as Markdown."""
        return f"{markdown(self.frame())}\n\n" + "\n".join(f"- {markdown_text(note)}" for note in self.notes) + "\n"

    @property
    def custom_metric_names(self) -> list[str]:
        """Names of the metrics without a field of a record."""
        return field_names([row.custom_metrics for row in self.rows])

    def has(self, measure: str) -> bool:
        """Whether any trial has such a measure."""
        return any(measure in row.estimates for row in self.rows)
