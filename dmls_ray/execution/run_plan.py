"""`run_plan`: run what a results folder lacks, and return its results."""

from __future__ import annotations

import functools
import itertools
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dmls_ray.analysis.export.files import DERIVED_FILES, derived_files_are_current, write_derived_files
from dmls_ray.analysis.presentation import presentation_of
from dmls_ray.analysis.results import Results, results_of
from dmls_ray.analysis.summary.phrases import count_noun
from dmls_ray.analysis.tensorboard.live import FOLDER, LiveTensorBoardWriter
from dmls_ray.config.grid import Plan, configs_of
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import SearchSpace
from dmls_ray.execution.blocks import blocks_of
from dmls_ray.execution.executor import Executor
from dmls_ray.execution.identities import Identities
from dmls_ray.execution.planning import finished_run_ids, results_location
from dmls_ray.execution.recorder import describe_session
from dmls_ray.execution.run_folder import run_folder
from dmls_ray.execution.search import proposed_before
from dmls_ray.execution.version_notes import describe_nothing_to_run, describe_repeated
from dmls_ray.execution.view import ProgressView
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import (
    describe_git,
    describe_machine,
    describe_versions,
    differing_facts,
    hardware_key,
    software_facts,
)
from dmls_ray.storage.folder import Store
from dmls_ray.storage.location import open_store
from dmls_ray.storage.runs_file import RUNS, read_records
from dmls_ray.util.errors import ConflictError, HeadLostError, NotKeptError, StoreError
from dmls_ray.util.importing import import_function
from dmls_ray.util.uri import below, is_uri
from dmls_ray.workloads.registry import workload_of


def run_plan(
    plan: Plan,
    options: Options,
    view: ProgressView,
    *,
    space: SearchSpace | None = None,
    on_stuck: Callable[[HeadLostError | KeyboardInterrupt], None] | None = None,
) -> Results:
    """Run the missing runs of a plan or a search space, and return the results.

    Args:
        plan: the runs.
        options: how they are run.
        view: shows the progress.
        space: what a searcher proposes from.
        on_stuck: called from any thread, after the results are written, to end this process: the main thread is stuck
            in a call to a cluster that is gone or silent.

    Raises:
        InputError: as `sweep`.
        KeyboardInterrupt: the sweep was stopped; the runs that had ended are kept.
    """
    folder = results_location(options)
    identities = Identities(workload_of(plan.runs[0].values))
    if not is_uri(folder):
        # Checked before the folder is created; opening a URI creates nothing.
        _refuse_package_of_job(Path(folder))
        check_plan(plan, options, list(read_records(folder)), folder, identities)
    with open_store(folder, view.note, (*DERIVED_FILES, FOLDER)) as store:
        if store.cut_bytes:
            view.note(f"Cut {store.cut_bytes} bytes of a torn last line off {store.where}: that run is run again.")
        if options.is_remote:
            check_plan(plan, options, store.all_records, folder, identities)
        finished = finished_run_ids(plan, store.all_records, options, identities)

        def results_so_far() -> Results:
            versions = store.versions.of(functools.partial(_of_this_call, plan, space))
            results = results_of(store.folder, versions, mirror=store.mirror, stale=options.stale)
            if options.until is not None:
                results.until = options.until
            return results

        blocks = blocks_of(plan, options.until, options.axis, finished, results_so_far)
        pending = blocks.next()
        if options.is_remote and any(map(workload_of(plan.runs[0].values).writes_files, configs_of(pending))):
            view.note("Profiles and other files of ranks need a folder, and --out is a URI: they are left out.")
        of_repeats = plan.repeats if options.save_weights else 0
        for name, repeats in (("weights.pt", of_repeats), ("trace-rank0.json.gz", options.trace)):
            if missing := _without_file(name, repeats, store.folder, plan, finished, identities):
                view.note(
                    f"{count_noun(missing, 'run')} that had ended {'has' if missing == 1 else 'have'} no {name}, which "
                    "is written at the end of a run. Pass --fresh to run all again."
                )
        if space is not None:
            # The runs of the plan are examples: they show whether anything is feasible.
            before = proposed_before(space, store.all_records, identities)
            answers = [item for item in before if item.outcome.is_answer()]
            missing = len(answers) < space.at_most(options.samples)
            pending = plan.runs if missing else ()
        count = len(store.all_records)
        was_restored = not pending and _restore_version(plan, options, store, identities)
        has_space = True
        if not pending:
            view.note(
                describe_nothing_to_run(plan, store.all_records, identities, blocks.reason)
                if space is None
                else f"Nothing to run: the {count_noun(len(answers), 'run')} of this search are there."
            )
        board = LiveTensorBoardWriter(store.folder, view.note, off=options.tensorboard == "off")
        try:
            if pending:
                if repeated := describe_repeated(pending, store.all_records, identities):
                    view.note(repeated)
                _note_other_machines(store.records, view)
                _note_other_versions(store.records, view)

                def leave(error: HeadLostError | KeyboardInterrupt) -> None:
                    _write_derived(store, view, changed=len(store.all_records) > count)
                    store.close()
                    if on_stuck is not None:
                        on_stuck(error)

                Executor(
                    plan, options, store, view, board, identities, blocks,
                    space=space, on_stuck=leave if on_stuck else None,
                ).run(pending)  # fmt: skip
        except NotKeptError:
            has_space = False
            raise
        finally:
            if has_space:
                _write_derived(store, view, changed=len(store.all_records) > count or was_restored)
            board.end(store.records)
        results = results_so_far()
        others = [item for item in results.records if item.isolation and item.isolation != options.isolation]
        if others:
            view.note(f"{len(others)} runs were there already, with isolation={others[0].isolation}: --fresh runs all.")
        return results


def check_plan(
    plan: Plan, options: Options, records: Sequence[RunRecord], location: Path | str, identities: Identities
) -> None:
    """Refuse what cannot run, before anything starts.

    Args:
        plan: the runs.
        options: how they are run.
        records: what the results folder holds.
        location: the results folder, or its URI.
        identities: the code and data of each run.

    Raises:
        StoreError: the folder holds runs of another workload.
        InputError: the workload has a mistake, or refuses a configuration.
    """
    _refuse_another_workload(plan, records, location)
    workload = workload_of(plan.runs[0].values)
    presentation_of(workload)
    if not workload.entrypoint.startswith("dmls_ray."):  # those load PyTorch, and exist
        import_function(workload.entrypoint, flag=f"workload {workload.name}: its entrypoint")
    configs = configs_of(plan.pending(finished_run_ids(plan, records, options, identities)))
    workload.check(configs)
    for (name, value), reason in workload.unfit_values(configs).items():
        raise ConflictError(f"{name}={value}: {reason}; leave {name} out, or use another model.")


def _without_file(
    name: str, repeats: int, folder: Path, plan: Plan, finished: Collection[str], identities: Identities
) -> int:
    """How many of the runs that had ended have no such file, of the first repeats of each trial."""
    runs = [run for run in plan.runs if run.run_id in finished and run.repeat < repeats]
    return sum(not (run_folder(folder, run.run_id, identities.of(run)) / name).exists() for run in runs)


def _write_derived(store: Store, view: ProgressView, *, changed: bool) -> None:
    """Write the files that follow from the runs, if they are missing or outdated. A failure becomes a note."""
    try:
        if changed or not derived_files_are_current(store.folder):
            write_derived_files(results_of(store.folder, store.versions, mirror=store.mirror))
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
            "absolute path that outlives it."
        )


def _refuse_another_workload(plan: Plan, records: Sequence[RunRecord], location: Path | str) -> None:
    """Refuse to add runs to a folder of another workload: one table shows one workload.

    Raises:
        StoreError: the folder holds runs of another workload.
    """
    configs = {
        (str(record.config.get("train")), str(record.config.get("workload"))): record.config for record in records
    }
    others = {_workload_name(config) for config in configs.values()} - {_workload_name(plan.runs[0].values)}
    if others:
        raise StoreError(
            f"--out {location} holds runs of {', '.join(sorted(others))}; name another folder, or pass --fresh."
        )


def _workload_name(config: Mapping[str, Any]) -> str:
    """The name of the workload, without the digest that earlier versions appended to a function of a notebook."""
    return workload_of(config).name.partition("#")[0]


def _restore_version(plan: Plan, options: Options, store: Store, identities: Identities) -> bool:
    """Note in sweep.json that an earlier version, whose runs are all there, is current again: no run says so.

    Returns:
        Whether it was not current.
    """
    identity, newest = identities.together(plan.runs), store.versions.newest
    if all(newest.get(name) == digest for name, digest in {**identity.code, **identity.data}.items()):
        return False
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    store.add_session({"started_at": started_at, **describe_session(plan, options, identity)})
    return True


def _of_this_call(plan: Plan, space: SearchSpace | None, records: Sequence[RunRecord]) -> list[RunRecord]:
    if space is not None:
        return proposed_before(space, records)
    wanted = {run.run_id for run in plan.runs}
    return [record for record in records if record.run_id in wanted]


def _note_other_machines(records: Sequence[RunRecord], view: ProgressView) -> None:
    others = {
        record.machine.get("host", "another machine")
        for record in records
        if record.outcome is not Outcome.SKIPPED and hardware_key(record.machine) != hardware_key(describe_machine())
    }
    if others:
        view.note(
            f"This folder holds runs of {', '.join(sorted(others))}, and this is {describe_machine()['host']}: "
            "their times cannot be compared. Pass --fresh to start a new folder."
        )


def _note_other_versions(records: Sequence[RunRecord], view: ProgressView) -> None:
    """Note that the folder has runs of other versions: no comparison pairs them with the runs to come."""
    here = software_facts(describe_versions(), describe_git())
    others: dict[str, list[dict[str, str]]] = {}
    for record in records:
        facts = software_facts(record.versions, record.git)
        if record.outcome is not Outcome.SKIPPED and facts != here:
            others.setdefault(str(sorted(facts.items())), []).append(facts)
    for same in others.values():
        there, now = differing_facts([same[0], here])
        view.note(
            f"This folder holds {count_noun(len(same), 'run')} of other versions ({there}), and these are {now}: they "
            "are not compared. Pass --fresh to start a new folder."
        )
