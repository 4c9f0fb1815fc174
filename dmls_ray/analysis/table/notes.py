"""What a reader of a table must know: where and when it was measured, and what in it cannot be compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dmls_ray.analysis.results import Results, distinct
from dmls_ray.analysis.summary.independent_ranks import describe_independent_ranks
from dmls_ray.analysis.summary.phrases import describe_configuration, join_names
from dmls_ray.analysis.table.model import Note, Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.analysis.table.uneven_steps import describe_uneven_steps
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import differing_facts, software_facts
from dmls_ray.records.training_metrics import is_loss


def notes_of(results: Results, table: Table) -> Iterator[Note]:
    """The notes of a table, the most important first."""
    rows, records = table.rows, results.records
    if not records:
        yield Note("measured_on", "No runs.")
        if results.version_note:
            yield Note("comparability", results.version_note)
        return
    machines = {_machine_text(machine) for machine in distinct(record.machine for record in records)}
    versions = {
        ", ".join(f"{name} {item[name]}" for name in ("python", "torch", "ray") if name in item)
        for item in distinct(record.versions for record in records)
    }
    days = sorted({record.started_at[:10] for record in records if record.started_at})
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    most = max((len(row.counted) for row in rows), default=0)
    values = "Mean of n repeats and its 95% interval" if most > 2 else "Means" if most > 1 else "Values"
    where = ", ".join(part for part in ("; ".join(sorted(machines)), "; ".join(sorted(versions)), when) if part)
    yield Note("measured_on", f"{values}; measured on {where}.", about=where)

    if results.version_note:
        yield Note("comparability", results.version_note)
    for text in _incomparable(records, rows, len(machines)):
        yield Note("comparability", text)
    for text in describe_independent_ranks(rows):
        yield Note("comparability", text)
    if text := _same_runs(table):
        yield Note("comparability", text)
    if text := describe_uneven_steps(rows):
        yield Note("comparability", text)
    for text in _of_scaling(results, rows, table.fixed_batch_field):
        yield Note("baseline", text)
    yield from table.presentation.notes(rows)
    if text := _of_test_set(rows):
        yield Note("method", text)
    slow = {str(record.config.get("precision")) for record in records if record.facts.get("fast_units") is False}
    if slow:
        text = f"This processor has no units for {', '.join(sorted(slow))}: it runs, and slower than fp32."
        yield Note("comparability", text)
    if any(record.metrics.get("resumed_epoch") for record in records):
        text = "Some runs were taken up from a checkpoint: their times leave out what was lost."
        yield Note("comparability", text)
    for text in _not_recorded(rows):
        yield Note("outcome", text)
    for text in _failures(rows):
        yield Note("outcome", text)


def _incomparable(records: Sequence[RunRecord], rows: Sequence[Row], machines: int) -> Iterator[str]:
    """What of the rows cannot be compared, and why."""
    started = [record for record in records if record.outcome is not Outcome.SKIPPED]
    sessions = {record.session for record in started}
    if len(sessions) > 1:
        yield (
            f"Measured in {len(sessions)} sessions: what drifted from one to the next is not evened out by the blocks."
        )
    if machines > 1:
        yield "Rows come from different machines: times of one are not compared with those of another."
    yield from _of_versions(rows)
    isolations = sorted({record.isolation for record in started})
    if len(isolations) > 1:
        yield f"Runs were made under different isolations ({', '.join(isolations)}): set-up differs."
    if any(record.mode == "search" for record in records):
        yield "Runs of a search go side by side and some are stopped early: their times are left out."
    of_auto = (record for row in rows for record in row.counted if record.config.get("device") == "auto")
    devices = sorted({record.device for record in of_auto})
    if len(devices) > 1:
        yield f"Rows come from different devices ({', '.join(devices)}): their times are not compared."


def _of_versions(rows: Sequence[Row]) -> Iterator[str]:
    """Which rows ran with which versions, where these differ."""
    by_objects: dict[tuple[int, int], list[RunRecord]] = {}  # the records of a session share the objects
    for record in (record for row in rows for record in row.records if record.outcome is not Outcome.SKIPPED):
        by_objects.setdefault((id(record.versions), id(record.git)), []).append(record)
    by_facts: dict[str, tuple[dict[str, str], Counter[str]]] = {}
    for records in by_objects.values():
        facts = software_facts(records[0].versions, records[0].git)
        _, counts = by_facts.setdefault(str(sorted(facts.items())), (facts, Counter()))
        counts.update(record.trial_id for record in records)
    if len(by_facts) < 2:
        return

    totals = sum((counts for _, counts in by_facts.values()), Counter())
    texts = []
    for what, (_, counts) in zip(
        differing_facts([facts for facts, _ in by_facts.values()]), by_facts.values(), strict=True
    ):
        names = [
            describe_configuration(row.factors)
            + (f" ({count} of {total} runs)" if count < (total := totals[row.trial_id]) else "")
            for row in rows
            if (count := counts[row.trial_id])
        ]
        texts.append(f"{what}: {join_names(names)}.")
    yield f"Rows of different versions are not compared with each other. {' '.join(texts)}"


def _of_scaling(results: Results, rows: Sequence[Row], fixed_batch_field: str) -> Iterator[str]:
    """What a comparison of world sizes keeps equal."""
    if len({row.world_size for row in rows}) < 2:
        return
    threads = {record.config.get("threads_per_rank") for record in results.records}
    if threads == {None}:
        yield "How many threads a rank had is not reported."
    elif len(threads) == 1:
        yield f"threads_per_rank is {next(iter(threads))} at every world_size, so total threads grow with it."
    if any(row.speed_up for row in rows):
        scaling = "strong" if fixed_batch_field == "global_batch" else "weak"
        by = "" if any("images_per_s" in row.estimates for row in rows) else " by s/run"
        equal = "" if len(threads) == 1 else " and threads_per_rank"
        yield (
            f"Speed-up{by} is against world_size 1 without DDP at the same {fixed_batch_field}{equal} ({scaling} "
            "scaling)."
        )
    full = sorted({row.world_size for row in rows if any(map(_takes_all_cores, row.counted))})
    if full:
        yield (
            f"At world_size {', '.join(map(str, full))} the ranks take all cores of a machine and share "
            "them with the driver and Ray: with spare cores they may be faster."
        )


def _takes_all_cores(record: RunRecord) -> bool:
    """Whether the ranks of a run on CPUs have as many threads as their machine has cores."""
    cores, config = record.machine.get("cores"), record.config
    ranks = config.get("ranks_per_machine") or config.get("world_size", 1) // (config.get("machines") or 1)
    return bool(cores) and record.device == "cpu" and ranks * (config.get("threads_per_rank") or 1) >= cores


def _failures(rows: Sequence[Row]) -> Iterator[str]:
    """Why runs are not ok, each reason once, with the trials whose runs it ended."""
    names: dict[str, list[str]] = {}
    for row in rows:
        failed = [record for record in row.records if record.outcome is not Outcome.OK and record.reason]
        for reason in dict.fromkeys(f"{record.outcome}: {record.reason.removesuffix('.')}." for record in failed):
            names.setdefault(reason, []).append(describe_configuration(row.factors))
    for reason, of_trials in names.items():
        yield f"{join_names(of_trials)}: {reason}"


def _not_recorded(rows: Sequence[Row]) -> Iterator[str]:
    """What training functions reported and is not recorded, with the trials."""
    names: dict[str, list[str]] = {}
    for row in rows:
        for text in dict.fromkeys(record.not_recorded for record in row.records if record.not_recorded):
            names.setdefault(text, []).append(describe_configuration(row.factors))
    for text, of_trials in names.items():
        yield f"Not recorded of {join_names(of_trials)}: {text}."


def _same_runs(table: Table) -> str:
    """Which repeats repeat the same run; empty without any."""
    compared = {measure.name for measure in table.presentation.measures(table.rows)}
    same = {
        describe_configuration(row.factors): names
        for row in table.rows
        if (names := [name for name in row.same_results if is_loss(name) or name in compared])
    }
    if not same:
        return ""
    results = dict.fromkeys(name for names in same.values() for name in names)
    return (
        f"Every repeat of {join_names(list(same))} has the same {', '.join(results)} though seeds differ: "
        "results were measured once and have no interval. If the function sets a seed itself, let it take that "
        "of the run (config['seed'])."
    )


def _of_test_set(rows: Sequence[Row]) -> str:
    """What the intervals of test accuracy leave out; empty where the number of test samples is not known."""
    errors = []
    for row in rows:
        accuracy = row.estimates.get("test_accuracy")
        counts = {record.metrics.get("test_samples") for record in row.counted}
        if accuracy is None or accuracy.low is None or len(counts) != 1 or not (count := counts.pop()):
            continue
        share = min(max(accuracy.centre, 0.0), 1.0)
        errors.append((1.96 * math.sqrt(share * (1 - share) / count), count))
    if not errors:
        return ""
    samples = " or ".join(f"{count:,}" for count in sorted({count for _, count in errors}))
    return (
        f"Intervals of test accuracy are over seeds, with one test set of {samples} samples: for new samples the "
        f"accuracy may differ by a further {max(errors)[0]:.1g}."
    )


def _machine_text(machine: Mapping[str, Any]) -> str:
    gpus = machine.get("gpus") or []
    cores = f", {machine['cores']} cores" if machine.get("cores") else ""
    return f"{machine.get('cpu', 'an unknown CPU')}{cores}" + (f", {len(gpus)} x {gpus[0]}" if gpus else "")
