"""A sweep from its axes to its results: plan, check, skip what is done, run what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.analysis.files import are_written, write_files
from dmls_ray.analysis.frames import Results
from dmls_ray.config import BUILTIN_MODELS
from dmls_ray.errors import ConfigError
from dmls_ray.execution import Execution
from dmls_ray.live import PlainView, View
from dmls_ray.machine import describe_machine, same_machine
from dmls_ray.options import Options
from dmls_ray.plan import Plan, Run, make_plan
from dmls_ray.record import Outcome, RunRecord
from dmls_ray.store import Store, read_records


def sweep(axes: Mapping[str, Any], **options: Any) -> Results:
    """Run every configuration of a grid that its results folder does not hold yet.

    Args:
        axes: field of `TrialConfig` -> one value, or a sequence of values. Give batch_per_rank or global_batch.
        **options: the fields of `Options`: name, axis, repeats, order_seed, out, fresh, isolation, address,
            oversubscribe, checkpoints, save_weights, dashboard, verbose.

    Returns:
        The runs of this grid, as DataFrames: `.runs`, `.ranks`, `.epochs`.

    Raises:
        InputError: what was asked for cannot be run; nothing was started, and nothing is lost.
    """
    from rich.console import Console

    known = Options.__dataclass_fields__
    for name in options:
        if name not in known:
            raise ConfigError(f"{name} is no option of sweep; the options are {', '.join(known)}.")
    settled = Options(**options)
    plan = make_plan(axes, repeats=settled.repeats, order_seed=settled.order_seed)
    return run_plan(plan, settled, PlainView(Console()))


def run_plan(plan: Plan, options: Options, view: View) -> Results:
    """Run what is missing of a plan; returns the results of its runs.

    Raises:
        InputError: as `sweep`.
        KeyboardInterrupt: the sweep was stopped; the runs that had ended are kept.
    """
    folder = options.folder
    done = {record.run_id for record in read_records(folder) if record.outcome.is_final()}
    check_names(plan.pending(done))
    with Store(folder) as store:
        if store.cut_bytes:
            view.note(f"Cut {store.cut_bytes} bytes of a torn last line off {store.folder}: that run is run again.")
        pending = plan.pending(store.done())
        before = len(store.records)
        try:
            if pending:
                _warn_of_other_machine(store.records, view)
                Execution(plan, options, store, view).run(pending)
        finally:
            if len(store.records) > before or not are_written(store.folder):
                write_files(Results(store.folder, store.records))
        wanted = {run.run_id for run in plan.runs}
        results = Results(store.folder, [record for record in store.records if record.run_id in wanted])
        others = [item for item in results.records if item.isolation and item.isolation != options.isolation]
        if others:
            view.note(f"{len(others)} runs were there already, with isolation={others[0].isolation}: --fresh runs all.")
        return results


def check_names(runs: Sequence[Run]) -> None:
    """Refuse models and data sets that do not exist, before anything starts.

    Raises:
        UnknownNameError, UserCodeError, ConfigError, DataError: as `find_model` and `check_source`.
    """
    from dmls_ray.training.data.sources import check_source

    configs = [run.config for run in runs if run.config is not None]
    for model in dict.fromkeys(config.model for config in configs):
        if model not in BUILTIN_MODELS:
            from dmls_ray.training.models import find_model

            find_model(model)
    for dataset, data_dir in dict.fromkeys((config.dataset, config.data_dir) for config in configs):
        check_source(dataset, data_dir)


def _warn_of_other_machine(records: Sequence[RunRecord], view: View) -> None:
    others = {
        record.machine.get("host", "another machine")
        for record in records
        if record.outcome is not Outcome.SKIPPED and not same_machine(record.machine, describe_machine())
    }
    if others:
        view.note(
            f"This folder holds runs of {', '.join(sorted(others))}, and this is {describe_machine()['host']}: "
            "their times cannot be compared. Pass --fresh for a folder of this machine's own."
        )
