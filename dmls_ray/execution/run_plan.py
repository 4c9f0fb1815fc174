"""`sweep`, the public function that runs a sweep, and `run_plan`, which runs what a results folder lacks."""

from __future__ import annotations

import functools
import inspect
import itertools
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dmls_ray.analysis.export.files import derived_files_are_current, write_derived_files
from dmls_ray.analysis.findings.sweep_trials import Questions
from dmls_ray.analysis.results import Results, distinct, results_of
from dmls_ray.analysis.sweep_results import SweepResults
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.words import count_noun
from dmls_ray.cluster.held_group import HeldGroup, kept_group
from dmls_ray.config.axes import of_ray_tune
from dmls_ray.config.fields import field_specs
from dmls_ray.config.grid import Plan, configs_of
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import SearchSpace
from dmls_ray.config.sweep_file import SWEEP_FILE, sweep_file_text
from dmls_ray.execution.executor import Executor
from dmls_ray.execution.next_runs import NextRuns, finished_run_ids, kept_records, proposed_before
from dmls_ray.execution.planning import judged_by, plan_of, results_location
from dmls_ray.execution.recorder import describe_session
from dmls_ray.execution.supervisor import Heartbeat
from dmls_ray.execution.view import ProgressConsole, View
from dmls_ray.records import provenance
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.storage.folder import write_file
from dmls_ray.storage.location import open_store
from dmls_ray.storage.runs_file import RUNS, read_records
from dmls_ray.storage.store import Store
from dmls_ray.util.errors import ConfigError, ConflictError, NotKeptError, StoreError
from dmls_ray.util.importing import check_libraries, import_function, is_importing
from dmls_ray.util.interpreter import uninterrupted
from dmls_ray.util.programs import is_program
from dmls_ray.util.text import did_you_mean
from dmls_ray.util.uri import below, is_uri
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload

Axes = Mapping[str, Any]


def sweep(
    train_or_axes: str | Callable[..., Any] | Axes | None = None,
    axes: Axes | None = None,
    /,
    *,
    workload: str | None = None,
    args: Sequence[str] = (),
    env: Axes | None = None,
    share: Sequence[str] = (),
    keep: bool | None = None,
    **options: Any,
) -> SweepResults:
    """Run every configuration of a grid that its results folder does not hold yet, and print the table and the answer.

    ``sweep(axes)`` trains image classifiers. ``sweep(train, axes)`` calls a user-defined training function, and
    ``sweep("train.py", axes)`` runs a script. ``sweep(axes, workload="NAME")`` runs a workload of another package.

    Args:
        train_or_axes: `train(config, rank, emit)`, or its name, `module:function`; the path of a script, or "-m" and
            the name of a module; or the axes of a workload.
        axes: field -> one value, or a sequence of values. The fields are those of `TrialConfig`, of which
            batch_per_rank or global_batch must be given; or those of the function's or the workload's configuration,
            and world_size, machines, ranks_per_machine, backend, launcher, device, threads_per_rank and seed.
            model may be a function or class, dataset one that returns the samples of a split, or a dict of those of
            "train" and "test".
        workload: Name of an installed workload; classification by default.
        args: Arguments that a script has in every run. `{name}` stands for the value of an axis.
        env: Variables of a script's environment, as axes.
        share: Files and folders that runs of a script's revision read where they are, instead of a copy.
        keep: Whether the ranks stay for the next call of this process, whose first run then starts at once: for ten
            minutes without a call, or until `dmls_ray.close()`. None: they do where they hold no GPU and no part of a
            cluster that others use. While they stay, Ray is connected in this process.
        **options: The fields of `Options`, which are the flags of a sweep, too: repeats=5, out="results/mine",
            budget="20m", ... `help(dmls_ray.Options)` lists them. name, of the results folder, is by default `sweep`,
            or the name of the function or workload. num_samples, storage_path and mode are taken as Ray Tune has them.

    Returns:
        The runs of this grid, as DataFrames: `.runs`, `.ranks`, `.epochs`; and its trials, by iteration.

    Raises:
        InputError: the sweep cannot be run as it was asked for; nothing was started, and nothing is lost.
    """
    if is_importing():
        raise ConfigError("sweep() was called while its module was imported; put it under if __name__ == '__main__'.")
    if isinstance(train_or_axes, str) and is_program(train_or_axes):
        variables = {}
        for name, given in (env or {}).items():
            variables[name] = next(iter(given), "") if isinstance(given, list | tuple) else given
        chosen = registry.workload_of_script(train_or_axes, args, variables=variables, shared=share)
        axes = {name.replace("-", "_"): values for name, values in (axes or {}).items()} | dict(env or {})
    elif args or env or share:
        raise ConfigError(
            "args, env and share are those of a script; give its path: sweep('train.py', axes, args=[...])."
        )
    else:
        chosen, axes = _workload_and_axes(train_or_axes, axes, workload)
    default_name = "sweep" if chosen.name == registry.DEFAULT else chosen.folder_name
    options = _of_ray_tune({"name": default_name, **options})
    for name in options:
        if name not in field_specs(Options):
            if name in chosen.schema().specs:
                raise ConfigError(f"{name} is no option of sweep but a field of {chosen.name}; put it into the axes.")
            names = ["workload", *field_specs(Options)]
            meant = did_you_mean(name, names)
            raise ConfigError(f"{name} is no option of sweep; {meant}the options are {', '.join(names)}.")
    checked = Options(**options)
    axes = {name: of_ray_tune(name, given) for name, given in axes.items()}
    plan, space = plan_of(chosen.name_objects(axes), checked, chosen)
    view = View(ProgressConsole())
    with kept_group(checked, keep) as held:
        results = SweepResults.of_results(run_plan(plan, checked, view, space=space, held=held))
    view.note(f"\n{results}")
    return results


def _with_options(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function with the fields of `Options` in place of `**options`, for notebooks and `help`."""
    *parameters, _ = inspect.signature(function).parameters.values()
    options = inspect.signature(Options).parameters.values()
    return inspect.Signature([*parameters, *options], return_annotation="SweepResults")


sweep.__signature__ = _with_options(sweep)  # type: ignore[attr-defined]


def _workload_and_axes(
    train_or_axes: str | Callable[..., Any] | Axes | None, axes: Axes | None, workload: str | None
) -> tuple[Workload, Axes]:
    if isinstance(train_or_axes, Mapping) and axes is None:
        return registry.workload(workload or registry.DEFAULT), train_or_axes
    if train_or_axes is None or isinstance(train_or_axes, Mapping) or not isinstance(axes, Mapping):
        raise ConfigError("sweep() takes axes, or a training function and its axes: sweep(train, {'lr': [0.1, 0.01]}).")
    if workload is not None:
        raise ConfigError(f"workload={workload} and a training function are both given; give one of them.")
    return registry.workload_of_function(train_or_axes, axes), axes


def _of_ray_tune(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the names that they have here, of those that have others in Ray Tune.

    Raises:
        ConfigError: one is given by both names.
    """
    given = dict(options)
    for theirs, ours in (("num_samples", "trials"), ("mode", "goal"), ("storage_path", "out")):
        if theirs not in given:
            continue
        if ours in given:
            raise ConfigError(f"{theirs} and {ours} are both given, and mean the same; give one.")
        value = given.pop(theirs)
        given[ours] = below(str(value), given["name"]) if ours == "out" else value
    return given


def run_plan(
    plan: Plan,
    options: Options,
    view: View,
    *,
    space: SearchSpace | None = None,
    heartbeat: Heartbeat | None = None,
    held: HeldGroup | None = None,
) -> Results:
    """Run the missing runs of a plan or a search space, and return the results.

    Args:
        plan: the runs.
        options: how they are run.
        view: shows the progress.
        space: what a searcher proposes from.
        heartbeat: reports to the supervisor of this process, if there is one.
        held: keeps Ray and the ranks for further calls.

    Raises:
        InputError: as `sweep`.
        KeyboardInterrupt: the sweep was stopped; the runs that had ended are kept.
    """
    folder = results_location(options)
    if not is_uri(folder):
        # Checked before the folder is created; opening a URI creates nothing.
        _refuse_package_of_job(Path(folder))
        check_plan(plan, options, list(read_records(folder)), folder)
    with open_store(folder, view.note) as store:
        if options.is_remote:
            check_plan(plan, options, store.all_records, folder)
        present = store.all_records
        measured_again = set(map(_call_of, present)) - set(map(_call_of, kept_records(plan, present, options)))
        results_so_far = functools.partial(_results_so_far, store, plan, options, space, measured_again)
        state = NextRuns(plan, options, store.all_records, results_so_far, space)
        if summary := state.summary():
            view.note(summary)
        stale_ids = {record.run_id for record in store.split.stale}
        is_restored = not state.missing and not plan.run_ids.isdisjoint(stale_ids)
        if is_restored:
            # An edit was undone, so that stale trials are current again: no new run says so.
            started_at = datetime.now(UTC).isoformat(timespec="seconds")
            store.add_sessions({"started_at": started_at, **describe_session(plan, options)})
        if plan.asked is not None:
            write_file(store.folder / SWEEP_FILE, sweep_file_text(plan.asked, options, out=str(folder)))
        written, has_space = len(store.all_records), True

        def write_files() -> None:
            """Write the files that follow from the runs, where there are more of them than those files have."""
            nonlocal written
            is_changed = is_restored or len(store.all_records) > written
            written = len(store.all_records)
            _write_derived(store, view, changed=is_changed)

        try:
            if state.missing:
                _note_other_runs(store.records, view)
                heartbeat = heartbeat or Heartbeat()
                heartbeat.report(done=written)
                Executor(state, store, view, heartbeat, held, on_stop=write_files).run()
        except NotKeptError:
            has_space = False
            raise
        finally:
            if has_space:
                write_files()
        return results_so_far()


def _call_of(record: RunRecord) -> tuple[str, str]:
    """A run and the call that made it."""
    return record.run_id, record.session


def _results_so_far(
    store: Store, plan: Plan, options: Options, space: SearchSpace | None, measured_again: Collection[tuple[str, str]]
) -> Results:
    """The results of the runs that this call asks for, without those of other calls that it measures again."""
    split = store.split
    if space is None:
        wanted = plan.run_ids
        current = [record for record in split.current if record.run_id in wanted]
        current = [record for record in current if _call_of(record) not in measured_again]
    else:
        current = proposed_before(space, split.current)
    results = results_of(store.folder, replace(split, current=current), mirror=store.mirror, stale=options.stale)
    if options.until is not None:
        results.until = options.until
    results.judged_by = judged_by(options)
    return results


def check_plan(plan: Plan, options: Options, records: Sequence[RunRecord], location: Path | str) -> None:
    """Refuse what cannot run, before anything starts.

    Args:
        plan: the runs.
        options: how they are run.
        records: what the results folder holds.
        location: the results folder, or its URI.

    Raises:
        StoreError: the folder holds runs of another workload.
        InputError: the workload has a mistake, or refuses a configuration.
    """
    _refuse_another_workload(plan, records, location)
    workload = registry.workload_of(plan.fixed)
    Presentation.of(workload)
    Questions.of(workload)
    if not workload.entrypoint.startswith("dmls_ray."):  # those load PyTorch, and exist
        import_function(workload.entrypoint, flag=f"workload {workload.name}: its entrypoint")
    configs = configs_of(plan.pending(finished_run_ids(plan, records, options)))
    workload.check(configs)
    reasons = [workload.infeasible_reason(config) for config in configs]
    if reasons and all(reasons):
        raise ConflictError(reasons[0])
    if options.preload is not None:
        if not any(run.identity.code and run.values["launcher"] == "ray" for run in plan.runs):
            raise ConfigError(f"--preload {options.preload} is for scripts and functions with launcher ray; drop it.")
        check_libraries(options.preload)


def _write_derived(store: Store, view: View, *, changed: bool) -> None:
    """Write the files that follow from the runs, if they are missing or outdated. A failure becomes a note."""
    try:
        # Whoever stops a sweep and is impatient asks a second time.
        with uninterrupted():
            if not changed and derived_files_are_current(store.folder):
                return
            write_derived_files(results_of(store.folder, store.split, mirror=store.mirror))
    except Exception as error:  # noqa: BLE001 - a file that cannot be written must not hide the answer or an error of the sweep
        reason = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        again = f"dmls-ray report {shlex.quote(store.where)}"
        view.note(f"{reason} The runs are kept in {below(store.where, RUNS)}; {again} tries again.")


def _refuse_package_of_job(folder: Path) -> None:
    """Refuse the working directory of a Ray job, which Ray deletes some time after the job.

    Raises:
        StoreError: the folder is in such a directory.
    """
    parts = folder.resolve().parts
    if ("runtime_resources", "working_dir_files") in itertools.pairwise(parts):
        raise StoreError(
            f"--out {folder} is in the job's copy of its files, which Ray deletes after the job; give --out an "
            "absolute path elsewhere."
        )


def _refuse_another_workload(plan: Plan, records: Sequence[RunRecord], location: Path | str) -> None:
    """Refuse to add runs to a folder of another workload: one table shows one workload.

    Raises:
        StoreError: the folder holds runs of another workload.
    """
    present = {registry.workload_of(config).name for config in distinct(record.config for record in records)}
    others = present - {registry.workload_of(plan.fixed).name}
    if others:
        raise StoreError(
            f"--out {location} holds runs of {', '.join(sorted(others))}; name another folder, or pass --fresh."
        )


def _note_other_runs(records: Sequence[RunRecord], view: View) -> None:
    """Note that the folder has runs of other machines or versions: no comparison pairs them with the runs to come."""
    software = provenance.software_facts(provenance.describe_versions(), provenance.describe_git())
    here = provenance.hardware_key(provenance.machine_facts())
    measured = [record for record in records if record.outcome is not Outcome.SKIPPED]
    is_here = [provenance.hardware_key(record.machine) == here for record in measured]
    # Other machines of such a session are lanes of the same cluster.
    sessions = {record.session for record, is_so in zip(measured, is_here, strict=True) if is_so and record.session}
    others = 0
    for record, is_so in zip(measured, is_here, strict=True):
        has_same_software = provenance.software_facts(record.versions, record.git) == software
        others += not (has_same_software and (is_so or record.session in sessions))
    if others:
        view.note(
            f"This folder holds {count_noun(others, 'run')} of another machine or of other versions, which are not "
            "compared with the new runs. Pass --fresh to start a new folder."
        )
