"""A sweep from its axes to its results: plan, check, skip what is done, run what is missing."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from dmls_ray.analysis.export.files import DERIVED_FILES, derived_files_are_current, write_derived_files
from dmls_ray.analysis.results import OWN, Results
from dmls_ray.analysis.tensorboard.live import LiveTensorBoardWriter
from dmls_ray.analysis.tensorboard.writer import FOLDER
from dmls_ray.cli.progress import PlainView, View
from dmls_ray.config.grid import Plan, Run, Variant, make_plan
from dmls_ray.config.options import Options
from dmls_ray.config.schema import Schema
from dmls_ray.config.search_space import Range, Space, make_space, proposed_before
from dmls_ray.execution.executor import Execution
from dmls_ray.execution.preflight import check_names
from dmls_ray.records.aggregate import METRICS
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import describe_machine, same_hardware
from dmls_ray.storage.folder import RUNS, Store, read_records
from dmls_ray.storage.remote_store import mirror_of, open_store
from dmls_ray.util.errors import ConfigError, HeadLostError, StoreError
from dmls_ray.util.importing import is_importing
from dmls_ray.util.uri import below, is_uri
from dmls_ray.workloads.classification.config import TrialConfig, trial_schema
from dmls_ray.workloads.registry import workload_of_function
from dmls_ray.workloads.user_function.schema import folder_name


@overload
def sweep(axes: Mapping[str, Any], /, **options: Any) -> Results: ...
@overload
def sweep(train: str | Callable[..., Any], axes: Mapping[str, Any], /, **options: Any) -> Results: ...
def sweep(*what: Any, **options: Any) -> Results:
    """Run every configuration of a grid that its results folder does not hold yet.

    ``sweep(axes, ...)`` trains image classifiers, ``sweep(train, axes, ...)`` calls a training function of your own.

    Args:
        train: `train(config, rank, emit)`, or its name, `module:function`.
        axes: field -> one value, or a sequence of values. The fields are those of `TrialConfig`, of which
            batch_per_rank or global_batch must be given; or those of the function's own configuration, and world_size,
            backend, launcher, device, threads_per_rank and seed.
        **options: the fields of `Options`: repeats, out, fresh, isolation, address, max_retries, checkpoints, ...

    Returns:
        The runs of this grid, as DataFrames: `.runs`, `.ranks`, `.epochs`.

    Raises:
        InputError: what was asked for cannot be run; nothing was started, and nothing is lost.
    """
    from rich.console import Console

    if is_importing():
        raise ConfigError("sweep() was called while its module was imported; put it under if __name__ == '__main__'.")
    if len(what) not in (1, 2) or not isinstance(what[-1], Mapping):
        raise ConfigError("sweep() takes axes, or a training function and its axes: sweep(train, {'lr': [0.1, 0.01]}).")
    *functions, axes = what
    schema = workload_of_function(functions[0], axes).schema() if functions else trial_schema()
    known = Options.__dataclass_fields__
    for name in options:
        if name not in known:
            raise ConfigError(f"{name} is no option of sweep; the options are {', '.join(known)}.")
    if functions:
        options.setdefault("name", folder_name(functions[0]))
    settled = Options(**options)
    plan, space = plan_of(axes, settled, schema)
    return run_plan(plan, settled, PlainView(Console()), space=space)


def plan_of(
    axes: Mapping[str, Any], options: Options, schema: Schema | None = None, *, variants: Sequence[Variant] = ({},)
) -> tuple[Plan, Space | None]:
    """The runs that the options ask for: a grid, or random points of a space.

    Where a searcher of Ray Tune's proposes them, these are examples, and the space that it proposes from comes along.

    Raises:
        ConfigError: a field or a value is wrong, or a range is given and nothing draws from it.
    """
    if options.mode == "search" and (schema is None or schema is trial_schema()) and options.metric not in METRICS:
        raise ConfigError(f"metric={options.metric} is none that an epoch tells; choose from {', '.join(METRICS)}.")
    drawn = options.mode == "search" and options.searcher != "grid"
    ranges = [name for name, given in axes.items() if isinstance(given, Range)]
    if ranges and not drawn:
        raise ConfigError(
            f"{', '.join(ranges)} has a range, which a grid has no values of; add --mode search --searcher random (or "
            "optuna), or give values."
        )
    space = make_space(axes, schema) if drawn else None
    if space is not None:
        axes, variants = space.fixed, space.draw(options.samples, options.order_seed)
    plan = make_plan(
        axes, variants=variants, repeats=options.blocks, order_seed=options.order_seed, schema=schema
    )  # fmt: skip
    if space is None:
        return plan, None
    return dataclasses.replace(plan, changed=()), space if options.proposes else None


def run_plan(
    plan: Plan,
    options: Options,
    view: View,
    *,
    space: Space | None = None,
    at_worst: Callable[[HeadLostError], None] = lambda error: None,
) -> Results:
    """Run what is missing of a plan, or of a space; returns the results of its runs.

    Args:
        plan: the runs.
        options: how they are run.
        view: is told what happens.
        space: what a searcher proposes from.
        at_worst: called from another thread, once the results are written, where this one waits for a cluster's head
            that is gone, and nothing can wake it up.

    Raises:
        InputError: as `sweep`.
        KeyboardInterrupt: the sweep was stopped; the runs that had ended are kept.
    """
    folder = options.folder
    if not is_uri(folder):
        # Before there is a folder; at a URI nothing is made by opening it.
        _refuse_package_of_job(Path(folder))
        check_names(plan.pending(done(read_records(folder), options)))
    with open_store(folder, view.note, (*DERIVED_FILES, FOLDER)) as store:
        _refuse_another_function(plan, store)
        if store.cut_bytes:
            view.note(f"Cut {store.cut_bytes} bytes of a torn last line off {store.where}: that run is run again.")
        pending = plan.pending(done(store.records, options))
        if options.is_remote:
            check_names(pending)
            _tell_of_no_profiles(pending, view)
        if space is not None:
            # Examples of what may be proposed, to be looked over; how many are still to come is another matter.
            before = [item for item in proposed_before(space, store.records) if item.outcome.is_answer()]
            missing = len(before) < space.at_most(options.samples)
            pending = plan.runs if missing else ()
        count = len(store.records)
        board = LiveTensorBoardWriter(store.folder, view.note, off=options.tensorboard == "off")
        try:
            if pending:
                _warn_of_other_machine(store.records, view)

                def leave(error: HeadLostError) -> None:
                    _write_derived(store, view, anew=len(store.records) > count)
                    store.close()
                    at_worst(error)

                Execution(plan, options, store, view, board, space=space, at_worst=leave).run(pending)
        finally:
            _write_derived(store, view, anew=len(store.records) > count)
            board.end(store.records)
        results = Results(store.folder, _of_this_call(plan, space, store.records), mirror=mirror_of(store))
        others = [item for item in results.records if item.isolation and item.isolation != options.isolation]
        if others:
            view.note(f"{len(others)} runs were there already, with isolation={others[0].isolation}: --fresh runs all.")
        return results


def _write_derived(store: Store, view: View, *, anew: bool) -> None:
    """Write what is made of the runs, where it is missing or old, or `anew`; where it cannot be, a note says why."""
    try:
        if anew or not derived_files_are_current(store.folder):
            write_derived_files(Results(store.folder, store.records, mirror=mirror_of(store)))
    except Exception as error:  # noqa: BLE001 - neither the answer nor the sweep's own error is lost for want of a file
        told = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        again = f"dmls-ray report {shlex.quote(store.where)}"
        view.note(f"{told} The runs are kept in {below(store.where, RUNS)}; {again} tries again.")


def _tell_of_no_profiles(pending: Sequence[Run], view: View) -> None:
    if any(isinstance(run.config, TrialConfig) and run.config.inference_batch is not None for run in pending):
        view.note("Profiles of inference are files that ranks write, for which --out at a URI has no place: left out.")


def done(records: Iterable[RunRecord], options: Options) -> set[str]:
    """The runs that need not be run again: what a search has run is not measured, and what it has stopped not whole."""

    def counts(record: RunRecord) -> bool:
        if options.mode == "bench":
            return record.mode == "bench"
        return options.scheduler != "none" or record.stopped_epoch is None

    return {record.run_id for record in records if record.outcome.is_final() and counts(record)}


def _refuse_package_of_job(folder: Path) -> None:
    """Ray unpacks a job's working directory on the head, and deletes it some time after the job.

    Raises:
        StoreError: the results would go with it.
    """
    parts = folder.resolve().parts
    if ("runtime_resources", "working_dir_files") in itertools.pairwise(parts):
        raise StoreError(
            f"--out {folder} is in the job's own copy of its files, which Ray deletes after the job; give --out an "
            "absolute path that outlives it."
        )


def _refuse_another_function(plan: Plan, store: Store) -> None:
    """One table cannot tell of two functions.

    Raises:
        StoreError: the folder holds runs of another one.
    """
    wanted = plan.runs[0].values.get(OWN, "")
    others = {_function(record.config.get(OWN, "")) for record in store.records} - {_function(wanted)}
    if others:
        names = ", ".join(sorted(name or "the built-in trial" for name in others))
        raise StoreError(f"--out {store.where} holds runs of {names}; name another folder, or pass --fresh.")


def _function(name: str) -> str:
    """Without what tells versions of it apart."""
    return name.partition("#")[0]


def _of_this_call(plan: Plan, space: Space | None, records: Sequence[RunRecord]) -> list[RunRecord]:
    if space is not None:
        return proposed_before(space, records)
    wanted = {run.run_id for run in plan.runs}
    return [record for record in records if record.run_id in wanted]


def _warn_of_other_machine(records: Sequence[RunRecord], view: View) -> None:
    others = {
        record.machine.get("host", "another machine")
        for record in records
        if record.outcome is not Outcome.SKIPPED and not same_hardware(record.machine, describe_machine())
    }
    if others:
        view.note(
            f"This folder holds runs of {', '.join(sorted(others))}, and this is {describe_machine()['host']}: "
            "their times cannot be compared. Pass --fresh for a folder of this machine's own."
        )
