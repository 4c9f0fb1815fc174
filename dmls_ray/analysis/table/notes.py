"""What a reader of a table must know: where and when it was measured, and what in it cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from dmls_ray.analysis.results import Results, distinct
from dmls_ray.analysis.stats.intervals import MIN_REPEATS
from dmls_ray.analysis.table.model import Note, Table
from dmls_ray.analysis.trials.axis import BATCHES
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import join_names
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import differing_facts, software_facts

_SAME_RUNS = (
    "Every repeat of {} has the same results though seeds differ: they were measured once and have no interval. If the "
    "function sets a seed itself, let it take that of the run (config['seed'])."
)
_SEVERAL_MACHINES = "Rows come from different machines: times of one are not compared with those of another."
_NEVER_FIXED = {"seed", "data_dir"}
"""Fields that differ from run to run, or say where something is."""


def notes_of(results: Results, table: Table) -> Iterator[Note]:
    """The notes of a table, the most important first."""
    rows, records = table.rows, results.records
    if not records:
        yield Note("measured_on", "No runs.")
        return
    if fixed := held_fixed(table):
        yield Note("held_fixed", fixed)
    machines = sorted({_machine_text(machine) for machine in distinct(record.machine for record in records)})
    yield Note("measured_on", _measured_on(rows, records, machines))
    for text in _incomparable(results, table, machines):
        yield Note("comparability", text)
    for text in _of_scaling(records, rows, table.fixed_batch_field):
        yield Note("baseline", text)
    yield from table.presentation.notes(rows)
    if text := _of_test_set(rows):
        yield Note("method", text)
    for text_of in (_not_recorded, _failure):
        for text in _trials_by(rows, text_of):
            yield Note("outcome", text)


def _measured_on(rows: Sequence[Trial], records: Sequence[RunRecord], machines: Sequence[str]) -> str:
    """What the values are, and where, with which versions and when they were measured."""
    versions = set()
    for item in distinct(record.versions for record in records):
        versions.add(", ".join(f"{name} {item[name]}" for name in ("python", "torch", "ray") if name in item))
    days = sorted({record.started_at[:10] for record in records if record.started_at})
    when = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    where = ", ".join(filter(None, ["; ".join(machines), "; ".join(sorted(versions)), when]))
    most = max(len(row.counted) for row in rows)
    values = ("Values", "Values", "Means")[most] if most < MIN_REPEATS else "Mean of n repeats and its 95% interval"
    return f"{values}; measured on {where}."


def _incomparable(results: Results, table: Table, machines: Sequence[str]) -> Iterator[str]:
    """What of the runs cannot be compared, and why."""
    if results.left_out:
        yield results.left_out
    if len(machines) > 1:
        yield _SEVERAL_MACHINES
    sessions, isolations, devices, slow, modes = set(), set(), set(), set(), set()
    software: dict[tuple[int, int], dict[str, str]] = {}
    is_resumed = False
    for record in results.records:
        modes.add(record.mode)
        is_resumed = is_resumed or bool(record.metrics.get("resumed_epoch"))
        if record.facts.get("fast_units") is False:
            slow.add(str(record.config.get("precision")))
        if record.outcome is Outcome.OK and record.config.get("device") == "auto":
            devices.add(record.device)
        if record.outcome is Outcome.SKIPPED:
            continue
        sessions.add(record.session)
        isolations.add(record.isolation)
        # The records of a session share these objects.
        key = (id(record.versions), id(record.git))
        if key not in software:
            software[key] = software_facts(record.versions, record.git)
    if len(sessions) > 1:
        yield (
            f"Measured in {len(sessions)} sessions: what drifted from one to the next is not evened out by the blocks."
        )
    differing = dict.fromkeys(differing_facts([*software.values()]))
    if len(differing) > 1:
        yield f"Rows of different versions are not compared with each other: {'; '.join(differing)}."
    if len(isolations) > 1:
        yield f"Runs were made under different isolations ({', '.join(sorted(isolations))}): set-up differs."
    if "search" in modes:
        yield "Runs of a search go side by side and some are stopped early: their times are left out."
    if is_resumed:
        yield "Some runs were taken up from a checkpoint: their times leave out what was lost."
    if len(devices) > 1:
        yield f"Rows come from different devices ({', '.join(sorted(devices))}): their times are not compared."
    if slow:
        yield f"This processor has no units for {', '.join(sorted(slow))}: it runs, and slower than fp32."
    yield from _trials_by(table.rows, _independent_ranks)
    same = [describe_configuration(row.factors) for row in table.rows if row.same_results]
    if same:
        yield _SAME_RUNS.format(join_names(same))


def _trials_by(rows: Sequence[Trial], text_of: Callable[[RunRecord], str]) -> Iterator[str]:
    """What runs have to say, each once, with their trials."""
    names: dict[str, dict[str, None]] = {}
    for row in rows:
        for text in filter(None, map(text_of, row.records)):
            names.setdefault(text, {})[describe_configuration(row.factors)] = None
    for text, of_trials in names.items():
        yield f"{join_names(list(of_trials))}: {text}."


def _independent_ranks(record: RunRecord) -> str:
    if not record.independent_ranks or record.outcome is not Outcome.OK:
        return ""
    return f"the ranks did not train one model together: {record.independent_ranks}"


def _not_recorded(record: RunRecord) -> str:
    return f"not recorded: {record.not_recorded}" if record.not_recorded else ""


def _failure(record: RunRecord) -> str:
    if record.outcome is Outcome.OK or not record.reason:
        return ""
    return f"{record.outcome}: {record.reason.removesuffix('.')}"


def _of_scaling(records: Sequence[RunRecord], rows: Sequence[Trial], fixed_batch_field: str) -> Iterator[str]:
    """What a comparison of world sizes keeps equal."""
    if len({row.world_size for row in rows}) < 2:
        return
    threads = {record.config.get("threads_per_rank") for record in records}
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


def _of_test_set(rows: Sequence[Trial]) -> str:
    """What the intervals of test accuracy leave out; empty where the number of test samples is not known."""
    errors = {}
    for row in rows:
        accuracy = row.estimates.get("test_accuracy")
        counts = {record.metrics.get("test_samples") for record in row.counted}
        count = next(iter(counts), None)
        if accuracy is not None and accuracy.low is not None and len(counts) == 1 and count:
            share = min(max(accuracy.centre, 0.0), 1.0)
            errors[1.96 * math.sqrt(share * (1 - share) / count)] = count
    if not errors:
        return ""
    samples = " or ".join(f"{count:,}" for count in sorted({*errors.values()}))
    return (
        f"Intervals of test accuracy are over seeds, with one test set of {samples} samples: for new samples the "
        f"accuracy may differ by a further {max(errors):.1g}."
    )


def _machine_text(machine: Mapping[str, Any]) -> str:
    parts = [str(machine.get("cpu", "an unknown CPU"))]
    if machine.get("cores"):
        parts.append(f"{machine['cores']} cores")
    gpus = machine.get("gpus") or []
    if gpus:
        parts.append(f"{len(gpus)} x {gpus[0]}")
    return ", ".join(parts)


def held_fixed(table: Table) -> str:
    """`Held fixed: model digits_convnet, dataset digits, epochs 5`; empty where nothing was.

    Named are the fields that the workload always names, and those that are not at their default.
    """
    configs = [row.records[0].config for row in table.rows if row.records]
    if not configs:
        return ""
    workload = table.presentation.workload
    specs = workload.specs()
    # Without a list, a function's own fields: those that not every workload has.
    shared = {item.name for item in fields(RuntimeConfig)}
    named = table.presentation.always_named or tuple(name for name in configs[0] if name not in shared)
    varied = {*table.varied, *_NEVER_FIXED, *(BATCHES if {*table.varied} & BATCHES else ())} - table.constant
    others = [name for name, value in configs[0].items() if name in specs and value != specs[name].default]
    parts = []
    for name in dict.fromkeys([*named, *others]):
        value = configs[0].get(name)
        if name not in varied and value is not None and all(config.get(name) == value for config in configs):
            parts.append(f"{name} {value}")
    return f"Held fixed: {', '.join(parts)}." if parts else ""
