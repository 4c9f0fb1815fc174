"""What a reader of a table must know: where and when it was measured, and what in it cannot be compared."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.model import Note, Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.outcome import Outcome

_comparability = functools.partial(Note, "comparability")
"""A note on what in a table cannot be compared."""


def notes_of(results: Results, table: Table) -> list[Note]:
    """The notes of a table, the most important first."""
    rows = table.rows
    if not results.records:
        return [Note("measured_on", "No runs.")]
    machines = {_machine_text(machine) for machine in _distinct(record.machine for record in results.records)}
    versions = {
        ", ".join(f"{name} {item[name]}" for name in ("python", "torch", "ray") if name in item)
        for item in _distinct(record.versions for record in results.records)
    }
    days = sorted({record.started_at[:10] for record in results.records if record.started_at})
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    most = max((len(row.counted) for row in rows), default=0)
    values = "Median of n repeats and its 95% bootstrap interval" if most > 2 else "Medians" if most > 1 else "Values"
    where = ", ".join(part for part in ("; ".join(sorted(machines)), "; ".join(sorted(versions)), when) if part)
    notes = [Note("measured_on", f"{values}; measured on {where}.", about=where)]
    sessions = {record.session for record in results.records if record.outcome is not Outcome.SKIPPED}
    if len(sessions) > 1:
        notes.append(
            _comparability(
                f"Measured in {len(sessions)} sessions: what drifted from one to the next is not "
                "evened out by the blocks."
            )
        )
    if len(machines) > 1:
        notes.append(
            _comparability("Rows come from different machines: times of one are not compared with those of another.")
        )
    if len(versions) > 1:
        notes.append(_comparability("Rows come from different versions: a difference may be theirs."))
    isolations = {record.isolation for record in results.records if record.outcome is not Outcome.SKIPPED}
    if len(isolations) > 1:
        notes.append(
            _comparability(
                f"Runs were made under different isolations ({', '.join(sorted(isolations))}): set-up differs."
            )
        )
    if any(record.mode == "search" for record in results.records):
        notes.append(
            _comparability("Runs of a search go side by side and some are stopped early: their times are left out.")
        )
    devices = {record.device for row in rows for record in row.counted if record.config.get("device") == "auto"}
    if len(devices) > 1:
        names = ", ".join(sorted(devices))
        notes.append(_comparability(f"Rows come from different devices ({names}): their times are not compared."))
    notes += [Note("baseline", text) for text in _of_scaling(results, rows, table.fixed_batch_field)]
    notes += table.presentation.notes(rows)
    slow = {record.config["precision"] for record in results.records if record.fast_units is False}
    if slow:
        notes.append(
            _comparability(f"This processor has no units for {', '.join(sorted(slow))}: it runs, and slower than fp32.")
        )
    if any(record.resumed_epoch for record in results.records):
        notes.append(_comparability("Some runs were taken up from a checkpoint: their times leave out what was lost."))
    for reason in dict.fromkeys(f"{row.outcome}: {row.reason}" for row in rows if row.reason):
        notes.append(Note("outcome", reason if reason.endswith(".") else f"{reason}."))
    return notes


def _of_scaling(results: Results, rows: Sequence[Row], fixed_batch_field: str) -> list[str]:
    """What a comparison of world sizes keeps equal."""
    if len({row.world_size for row in rows}) < 2:
        return []
    notes = []
    threads = {record.config.get("threads_per_rank") for record in results.records}
    if threads == {None}:
        notes.append("How many threads a rank had is not reported.")
    elif len(threads) == 1:
        notes.append(f"threads_per_rank is {next(iter(threads))} at every world_size, so total threads grow with it.")
    if any(row.speed_up for row in rows):
        scaling = "strong" if fixed_batch_field == "global_batch" else "weak"
        by = "" if any("images_per_s" in row.estimates for row in rows) else " by s/run"
        equal = "" if len(threads) == 1 else " and threads_per_rank"
        notes.append(
            f"Speed-up{by} is against world_size 1 without DDP at the same {fixed_batch_field}{equal} ("
            f"{scaling} scaling), "
            "efficiency is speed-up / world_size."
        )
    return notes


def _distinct(items: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Each object once: many runs share one."""
    return {id(item): item for item in items}.values()


def _machine_text(machine: Mapping[str, Any]) -> str:
    gpus = machine.get("gpus") or []
    cores = f", {machine['cores']} cores" if machine.get("cores") else ""
    return f"{machine.get('cpu', 'an unknown CPU')}{cores}" + (f", {len(gpus)} x {gpus[0]}" if gpus else "")
