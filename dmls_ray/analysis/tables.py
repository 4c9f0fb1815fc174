"""The table a person would have drawn: a row a trial, and only the columns that vary or answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pandas as pd

from dmls_ray.analysis.formats import accuracy, bare, mib, number, rate, ratio, seconds, shown
from dmls_ray.analysis.frames import OWN, Results, factors_of, field_names
from dmls_ray.analysis.stats import Comparison, Estimate, compare, estimate
from dmls_ray.config import TrialConfig
from dmls_ray.fields import field_specs
from dmls_ray.record import METRICS, Outcome, RunRecord
from dmls_ray.store import uncollected

TIMES = ("images_per_s", "epoch_s", "total_s", "overhead_s", "step_ms_p50", "exposed_comm_ms")
"""Measures that say nothing where runs went side by side."""

MEASURES = (
    "peak_mem_mib",
    "stopped_epoch",
    *METRICS,
    "accuracy_gap",
    "overfit_epoch",
    "fp32_test_accuracy",
    "int8_test_accuracy",
    "fp32_checkpoint_bytes",
    "int8_checkpoint_bytes",
    "fp32_eager_ms_p50",
    "fp32_compiled_ms_p50",
    "int8_compiled_ms_p50",
)

_times_of, _measures_of = attrgetter(*TIMES), attrgetter(*MEASURES)

INFERENCE: dict[str, tuple[str, Callable[[float], str]]] = {
    "fp32_test_accuracy": ("fp32 test acc.", accuracy),
    "int8_test_accuracy": ("int8 test acc.", accuracy),
    "fp32_checkpoint_bytes": ("fp32 checkpoint bytes", mib),
    "int8_checkpoint_bytes": ("int8 checkpoint bytes", mib),
    "fp32_eager_ms_p50": ("fp32 eager ms", seconds),
    "fp32_compiled_ms_p50": ("fp32 compiled ms", seconds),
    "int8_compiled_ms_p50": ("int8 compiled ms", seconds),
}
"""Measure -> head and form of its column, where inference was measured."""

REGULARISERS = {"dropout", "batch_norm", "label_smoothing", "weight_decay", "l1", "augmentation", "early_stopping"}
"""Fields whose tables tell the gap between training and test."""


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
        counts = pd.Series([record.outcome.value for record in self.records]).value_counts()
        if len(counts) == 1:
            return str(counts.index[0])
        return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())

    @property
    def reason(self) -> str:
        """Why the first run that is not ok is not."""
        return next((record.reason for record in self.records if record.outcome is not Outcome.OK), "")

    @property
    def counted(self) -> list[RunRecord]:
        """The runs that its measures are of: those that ended ok, and of them whole ones where there are any."""
        return _ok(self.records)

    @property
    def timed(self) -> list[RunRecord]:
        """Of these, the ones whose times say something: they had their ranks' resources to themselves."""
        return [record for record in self.counted if record.mode == "bench"]

    def rates(self) -> dict[int, float]:
        """images_per_s by block, of the runs that ended ok."""
        return self.by_block("images_per_s")

    def level(self, measure: str) -> float | None:
        """The median of a measure; None where it is not known."""
        values = self.by_block(measure)
        return estimate(list(values.values())).median if values else None

    def by_block(self, measure: str) -> dict[int, float]:
        """A measure by block, of the runs that ended ok."""
        values = {
            item.repeat: item.measures[measure] if measure in item.measures else getattr(item, measure, None)
            for item in _ok(self.records)
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
        columns = self._columns()
        cells = [{head: show(row) for head, show in columns.items()} for row in self.rows]
        return pd.DataFrame(cells, columns=list(columns))

    def markdown(self) -> str:
        """The table and its notes as Markdown."""
        body = self.frame().to_markdown(index=False, disable_numparse=True, colalign=self._alignment())
        return body + "\n\n" + "\n".join(f"- {note}" for note in self.notes) + "\n"

    def _alignment(self) -> list[str]:
        return ["left" if head == "outcome" else "right" for head in self._columns()]

    def _columns(self) -> dict[str, Callable[[Row], str]]:
        columns: dict[str, Callable[[Row], str]] = {}
        for name in self.varied:
            columns[name] = lambda row, name=name: "" if row.factors[name] is None else str(row.factors[name])  # type: ignore[misc]
        if self._has("images_per_s"):
            columns["images/s [95%]"] = lambda row: shown(row.measures.get("images_per_s"), rate)
            columns["s/epoch"] = lambda row: bare(row.measures.get("epoch_s"), seconds)
            columns["s/run"] = lambda row: bare(row.measures.get("total_s"), seconds)
        elif any(record.mode == "bench" for row in self.rows for record in row.records):
            columns["s/run [95%]"] = lambda row: shown(row.measures.get("total_s"), seconds)
            if self._has("step_ms_p50"):
                columns["step ms"] = lambda row: bare(row.measures.get("step_ms_p50"), seconds)
        if "launcher" in self.varied:
            columns["start-up s"] = lambda row: bare(row.measures.get("overhead_s"), seconds)
        if any(row.speed_up for row in self.rows):
            columns["speed-up [95%]"] = lambda row: shown(row.speed_up.ratio if row.speed_up else None, ratio)
            columns["efficiency"] = lambda row: (
                f"{row.speed_up.ratio.median / row.world_size:.2f}" if row.speed_up else ""
            )
        if self._has("exposed_comm_ms"):
            columns["exposed comm. ms"] = lambda row: bare(row.measures.get("exposed_comm_ms"), seconds)
        columns["peak MiB"] = lambda row: bare(row.measures.get("peak_mem_mib"), mib)
        if self._has("train_accuracy"):
            columns["train acc."] = lambda row: bare(row.measures.get("train_accuracy"), accuracy)
        if self._has("test_accuracy"):
            columns["test acc. [95%]"] = lambda row: shown(row.measures.get("test_accuracy"), accuracy)
        if REGULARISERS & set(self.varied):
            columns["acc. gap"] = lambda row: bare(row.measures.get("accuracy_gap"), accuracy)
            columns["overfit from epoch"] = _overfit
        for measure, (head, write) in INFERENCE.items():
            if self._has(measure):
                columns[head] = lambda row, measure=measure, write=write: bare(row.measures.get(measure), write)  # type: ignore[misc]
        for name in ("train_loss", "test_loss", "validation_loss") if self.is_own else ():
            if self._has(name):
                columns[f"{name} [95%]"] = lambda row, name=name: shown(row.measures.get(name), number)  # type: ignore[misc]
        for name in self.own_measures:
            columns[f"{name} [95%]"] = lambda row, name=name: shown(row.own.get(name), number)  # type: ignore[misc]
        if self._has("stopped_epoch"):
            columns["stopped after epoch"] = lambda row: bare(row.measures.get("stopped_epoch"), number)
        columns["n"] = lambda row: str(len(_ok(row.records)))
        columns["outcome"] = lambda row: row.outcome
        if any(record.oversubscribed for row in self.rows for record in row.records):
            columns["oversubscribed"] = lambda row: "yes" if any(item.oversubscribed for item in row.records) else ""
        return columns

    @property
    def is_own(self) -> bool:
        """Whether a training function of the user's own was swept."""
        return any(OWN in record.config for row in self.rows for record in row.records)

    @property
    def own_measures(self) -> list[str]:
        """What training functions of the user's own measured."""
        return field_names([row.own for row in self.rows])

    def _has(self, measure: str) -> bool:
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
    names = _factor_names(factors, varied)
    rows = [_row(each, records, names) for each, records in zip(factors, by_trial.values(), strict=True)]
    rows.sort(key=lambda row: tuple(_sortable(name, row.factors[name]) for name in names))
    if best_by is not None:
        metric, minimizes = best_by
        rows.sort(key=lambda row: (row.level(metric) or 0.0) * (1 if minimizes else -1))
        rows.sort(key=lambda row: row.level(metric) is None)
    held = _held_batch(factors, varied or ())
    _add_speed_up(rows, held)
    return Table(varied=names, rows=rows, held=held, notes=_notes(results, rows, held))


def _ok(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs of a trial that count: those that a search has stopped only where there are no whole ones."""
    ok = [record for record in records if record.outcome is Outcome.OK]
    return [record for record in ok if record.stopped_epoch is None] or ok


def _factor_names(factors: Sequence[Mapping[str, Any]], varied: Sequence[str] | None) -> tuple[str, ...]:
    known = field_names(factors)
    names = {*(varied or ()), *(name for name in known if len({repr(each.get(name)) for each in factors}) > 1)}
    # A table that shows one batch shows the other.
    if names & {"batch_per_rank", "global_batch", "world_size", "accum_steps"} and "global_batch" in known:
        names |= {"batch_per_rank", "global_batch"}
    return tuple(name for name in known if name in names)


def _row(factors: Mapping[str, Any], records: list[RunRecord], names: Sequence[str]) -> Row:
    row = Row(records[0].trial_id, {name: factors.get(name) for name in names}, records)
    ok = _ok(records)
    timed = [record for record in ok if record.mode == "bench"]
    for names_of, read, counted in ((MEASURES, _measures_of, ok), (TIMES, _times_of, timed)):
        for measure, values in zip(names_of, zip(*map(read, counted), strict=True), strict=False):
            known = [value for value in values if value is not None]
            if known:
                row.measures[measure] = estimate(known)
    for measure in field_names(record.measures for record in ok):
        numbers = [value for record in ok if isinstance(value := record.measures.get(measure), int | float)]
        if numbers:
            row.own[measure] = estimate(numbers)
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

    def rest(row: Row) -> str:
        return repr([value for name, value in row.factors.items() if name not in free])

    bases = {rest(row): row for row in reversed(rows) if row.world_size == 1}
    for row in rows:
        base = bases.get(rest(row)) if row.world_size > 1 else None
        if base is not None and row.rates() and base.rates():
            row.speed_up = compare(row.rates(), base.rates())


def _overfit(row: Row) -> str:
    """The epoch, and of how many runs where not of all."""
    told = row.measures.get("overfit_epoch")
    if told is None:
        return ""
    of_all = len(_ok(row.records))
    return f"{told.median:.0f}" + (f" ({told.n} of {of_all})" if told.n < of_all else "")


def _notes(results: Results, rows: Sequence[Row], held: str) -> list[str]:
    if not results.records:
        return ["No runs."]
    machines = {_machine_text(machine) for machine in _distinct(record.machine for record in results.records)}
    versions = {
        ", ".join(f"{name} {item[name]}" for name in ("python", "torch", "ray") if name in item)
        for item in _distinct(record.versions for record in results.records)
    }
    days = sorted({record.started_at[:10] for record in results.records})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    most = max((len(_ok(row.records)) for row in rows), default=0)
    values = "Median of n repeats and its 95% bootstrap interval" if most > 2 else "Medians" if most > 1 else "Values"
    notes = [f"{values}; measured on {'; '.join(sorted(machines))}, {'; '.join(sorted(versions))}, {when}."]
    sessions = {record.session for record in results.records if record.outcome is not Outcome.SKIPPED}
    if len(sessions) > 1:
        notes.append(
            f"Measured in {len(sessions)} sessions: what drifted from one to the next is not evened out by the blocks."
        )
    if len(machines) > 1:
        notes.append("Rows come from different machines: their times cannot be compared.")
    if len(versions) > 1:
        notes.append("Rows come from different versions: a difference may be theirs.")
    isolations = {record.isolation for record in results.records if record.outcome is not Outcome.SKIPPED}
    if len(isolations) > 1:
        notes.append(f"Runs were made under different isolations ({', '.join(sorted(isolations))}): set-up differs.")
    if any(record.mode == "search" for record in results.records):
        notes.append("Runs of a search go side by side and some are stopped early: their times are left out.")
    threads = {record.config["threads_per_rank"] for record in results.records}
    if len({row.world_size for row in rows}) > 1 and len(threads) == 1:
        scaling = "strong" if held == "global_batch" else "weak"
        grows = f"threads_per_rank is {threads.pop()} at every world_size, so total threads grow with it"
        against = (
            f"; speed-up is against world_size 1 without DDP at the same {held} ({scaling} scaling), efficiency is "
            "speed-up / world_size"
        )
        notes.append(grows + (against if any(row.speed_up for row in rows) else "") + ".")
    slow = {record.config["precision"] for record in results.records if record.fast_units is False}
    if slow:
        notes.append(f"This processor has no units for {', '.join(sorted(slow))}: it runs, and slower than fp32.")
    if any(record.resumed_epoch for record in results.records):
        notes.append("Some runs were taken up from a checkpoint: their times leave out what was lost.")
    for reason in dict.fromkeys(f"{row.outcome}: {row.reason}" for row in rows if row.reason):
        notes.append(reason if reason.endswith(".") else f"{reason}.")
    return notes


def _distinct(items: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Each object once: many runs share one."""
    return {id(item): item for item in items}.values()


def _machine_text(machine: Mapping[str, Any]) -> str:
    gpus = machine.get("gpus") or []
    return f"{machine.get('cpu', 'an unknown CPU')}, {machine.get('cores', '?')} cores" + (
        f", {len(gpus)} x {gpus[0]}" if gpus else ""
    )


def _sortable(name: str, value: Any) -> tuple[int, Any]:
    """Numbers by size; choices in the order of their field, which begins with the plain one."""
    if value is None:
        return (0, 0)
    spec = field_specs(TrialConfig).get(name)
    choices = spec.choices if spec else ()
    if value in choices:
        return (1, choices.index(value))
    return (1, value) if isinstance(value, int | float) else (2, str(value))
