"""The table a person would have drawn: a row a trial, and only the columns that vary or answer.

Its notes say what a reader must know: where and when it was measured, and what in it cannot be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dmls_ray.analysis.findings.sweep_trials import sweep_trials
from dmls_ray.analysis.metrics import metric_of
from dmls_ray.analysis.results import Results, distinct
from dmls_ray.analysis.stats.intervals import MIN_REPEATS
from dmls_ray.analysis.table.model import OF_A_FIELD, Note, Table, headed
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.table.seen import by_fact
from dmls_ray.analysis.trials.above_linear import describe_above_linear
from dmls_ray.analysis.trials.axis import BATCHES
from dmls_ray.analysis.trials.steps import has_uneven_steps
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import join_names, names_of, no_metric_text
from dmls_ray.analysis.words_on_machines import disturbance_notes, lane_notes
from dmls_ray.config.runtime import RUNTIME_FIELDS
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import differing_facts
from dmls_ray.util.interpreter import gc_disabled


@gc_disabled()
def make_table(
    results: Results,
    varied: Sequence[str] | None = None,
    *,
    best_by: tuple[str, bool] | None = None,
    given: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> Table:
    """The table of a sweep, or of a search.

    Args:
        results: the runs.
        varied: fields to show as columns; without it, those in which the runs differ.
        best_by: a metric, and whether it is to be small, for the best trial first, and those that were stopped after
            those that trained to the end; without it, by the factors.
        given: field -> its values in the order in which they were given: others are compared with the first, unless one
            is the default.
    """
    trials = sweep_trials(results, varied, best_by=best_by, given=given)
    presentation = Presentation.of_trials(trials.rows)
    presentation.add_speed_up(trials.rows, trials.fixed_batch_field)
    if best_by is None:
        presentation.order(trials.rows, trials.varied)
    table = Table(**vars(trials))
    table.typed_notes = list(_notes_of(results, table, presentation))
    filled = []
    for column in presentation.columns(table):
        if column.prefix == OF_A_FIELD or any(column.text(row) for row in table.rows):
            filled.append(column)
    table.columns = headed(table, filled)
    notes = [metric_of(column.name).note for column in table.columns]
    table.typed_notes += [Note("method", note) for note in notes if note]
    return table


_SAME_RUNS = (
    "All repeats of {} have the same results although their seeds differ, so the results count as measured once and "
    "have no interval. {}."
)
_UNEVEN_STEPS = (
    "{}: the mean step of a run is at least twice its median step. A few steps are slow, or other work is timed with "
    "the steps. Rates, s/epoch and the parts of a step include it; step_ms_p50 does not."
)
_NOISY = 0.2
"""Spread of a product from which on other work has slowed it."""
_NOISY_PRODUCT = (
    "{}: MFU may be too high: other work slowed the product that it is a share of. On a quiet machine, delete the "
    "folder products of the cache, and measure again."
)
_NEVER_FIXED = {"seed", "data_dir"}
"""Fields that differ from run to run, or say where something is."""


def _notes_of(results: Results, table: Table, presentation: Presentation) -> Iterator[Note]:
    """The notes of a table, the most important first."""
    if not results.records:
        yield Note("measured_on", "No runs.")
        return
    if fixed := _held_fixed(table, presentation):
        yield Note("held_fixed", fixed)
    # Many runs share one description of their machine.
    machines = sorted({_machine_text(machine) for machine in distinct(record.machine for record in results.records)})
    yield Note("measured_on", _measured_on(results, table, machines))
    texts = []
    if results.left_out:
        texts.append(results.left_out)
    if len(machines) > 1:
        texts.append("Rows come from different machines. Times are compared only between runs on the same machine.")
    texts += [*_incomparable(results.records), *_differing_versions(table.rows)]
    if same := names_of(table.rows, lambda row: row.same_results):
        texts.append(_SAME_RUNS.format(same, presentation.seeds_by))
    if uneven := names_of(table.rows, has_uneven_steps):
        texts.append(_UNEVEN_STEPS.format(uneven))
    texts += lane_notes(table.rows)
    texts += disturbance_notes(table.rows)
    for text in texts:
        yield Note("comparability", text)
    for settings, trials in by_fact(table.rows, "without_effect").items():
        yield Note("method", f"{trials}: these settings had no effect: {settings}.")
    if results.judged_by is not None and not any(row.by_block(results.judged_by[0]) for row in table.rows):
        yield Note("method", no_metric_text(results.judged_by[0]))
    for reason, trials in by_fact(table.rows, "no_mfu").items():
        yield Note("method", f"{trials}: MFU is not known: {reason}.")
    if busy := names_of(table.rows, _has_noisy_product):
        yield Note("method", _NOISY_PRODUCT.format(busy))
    if any(row.speed_up for row in table.rows if row.world_size > 1):
        yield Note("baseline", _baseline_text(table))
    if above := describe_above_linear(table.rows):
        yield Note("baseline", f"{join_names(above)}: {_ABOVE_LINEAR}")
    yield from presentation.notes(table.rows)
    for text, names in _endings(table.rows).items():
        yield Note("outcome", f"{join_names(list(names))}: {text}.")


_ABOVE_LINEAR = (
    "the speed-up is larger than the number of ranks, which more ranks alone do not explain. Possible causes: more "
    "threads per rank, a share of the data that fits into a cache, or other programs that slowed the single rank."
)


def _has_noisy_product(trial: Trial) -> bool:
    return any(record.metrics.get("product_spread", 0.0) > _NOISY for record in trial.counted)


def _baseline_text(table: Table) -> str:
    """What speed-ups are against."""
    if not any("batch_per_rank" in row.records[0].config for row in table.rows):
        return "Speed-up is against world_size 1, all else equal; samples/step shows whether the global batch grew."
    equal = table.fixed_batch_field
    scaling = "strong" if equal == "global_batch" else "weak"
    return f"Speed-up is against world_size 1 without DDP at the same {equal} ({scaling} scaling)."


def _machine_text(machine: Mapping[str, Any]) -> str:
    parts = [str(machine.get("cpu", "an unknown CPU"))]
    if machine.get("cores"):
        parts.append(f"{machine['cores']} cores")
    gpus = machine.get("gpus") or []
    if gpus:
        parts.append(f"{len(gpus)} x {gpus[0]}")
    return ", ".join(parts)


def _measured_on(results: Results, table: Table, machines: Sequence[str]) -> str:
    """What the values are, and where, with which versions and when they were measured."""
    versions = set()
    for item in distinct(record.versions for record in results.records):
        versions.add(", ".join(f"{name} {item[name]}" for name in ("python", "torch", "ray") if name in item))
    parts = ["; ".join(machines), "; ".join(sorted(versions - {""})), results.days]
    where = ", ".join(part for part in parts if part)
    most = max(len(row.counted) for row in table.rows)
    values = "Values"
    if most >= MIN_REPEATS:
        values = "Mean of n repeats and its 95% interval"
    elif most == 2:
        values = "Means"
    return f"{values}; measured on {where}."


def _incomparable(records: Sequence[RunRecord]) -> Iterator[str]:
    """What of the runs cannot be compared, and why."""
    sessions, modes, devices = set(), set(), set()
    is_resumed = False
    for record in records:
        modes.add(record.mode)
        if record.outcome is Outcome.SKIPPED:
            continue
        sessions.add(record.session)
        is_resumed = is_resumed or bool(record.metrics.get("resumed_epoch"))
        if record.outcome is Outcome.OK and record.config.get("device") == "auto":
            devices.add(record.device)
    if len(sessions) > 1:
        yield (
            f"Runs come from {len(sessions)} sessions (calls on this folder), and one row may have runs of several "
            "sessions. Times are compared only between runs of the same block and session."
        )
    if "search" in modes:
        yield "Runs of a search share the machine, and some are stopped early, so their times are not shown."
    if "shared" in modes:
        yield "Runs shared the machines (--times off), so no times are shown."
    if is_resumed:
        yield "Some runs were resumed from a checkpoint; their times do not include the work that was lost."
    if len(devices) > 1:
        yield f"Rows come from different devices ({', '.join(sorted(devices))}): their times are not compared."


def _differing_versions(rows: Sequence[Trial]) -> Iterator[str]:
    """Which rows have runs with which versions, where these differ."""
    names: dict[Any, dict[str, None]] = defaultdict(dict)
    for row in rows:
        for software, _ in row.environments.values():
            names[software][describe_configuration(row.factors)] = None
    texts = []
    software_of = [dict(software) for software in names]
    for facts, found in zip(differing_facts(software_of), names.values(), strict=True):
        texts.append(f"{facts} ({join_names([*found], separator=', ')})")
    if len(texts) > 1:
        yield f"Rows of different versions are not compared with each other: {'; '.join(texts)}."


def _endings(rows: Sequence[Trial]) -> Mapping[str, Mapping[str, None]]:
    """Why runs are not ok, and what of others was not recorded or not trained together -> names of their trials."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        name = describe_configuration(row.factors)
        for record in row.records:
            is_ok = record.outcome is Outcome.OK
            if is_ok and record.independent_ranks:
                found[f"the ranks did not train one model together: {record.independent_ranks}"][name] = None
            if not is_ok and record.reason:
                found[f"{record.outcome}: {record.reason.removesuffix('.')}"][name] = None
            elif record.not_recorded:
                found[f"not recorded: {record.not_recorded}"][name] = None
    return found


def _held_fixed(table: Table, presentation: Presentation) -> str:
    """`Held fixed: model digits_convnet, dataset digits, epochs 5` of one trial or more; empty where nothing was.

    Named are the fields that the workload always names, and those that are not at their default.
    """
    configs = [row.records[0].config for row in table.rows]
    specs = presentation.workload.specs()
    # Without a list, a function's own fields: those that not every workload has.
    named = presentation.always_named or [name for name in configs[0] if name not in RUNTIME_FIELDS]
    others = [name for name, value in configs[0].items() if name in specs and value != specs[name].default]
    varied = {*table.varied, *_NEVER_FIXED}
    if varied & BATCHES:
        varied |= BATCHES
    varied -= table.constant
    parts = []
    for name in dict.fromkeys([*named, *others]):
        value = configs[0].get(name)
        if name not in varied and value is not None and all(config.get(name) == value for config in configs):
            parts.append(f"{name} {value}")
    return f"Held fixed: {', '.join(parts)}." if parts else ""
