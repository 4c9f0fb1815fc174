"""`sweep`, the public function that runs a sweep. `analysis.results.load` is the other one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Literal

from dmls_ray.analysis.results import Results
from dmls_ray.config.options import Isolation, Mode, Options
from dmls_ray.execution.planning import folder_name, plan_sweep
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.execution.view import PlainView, ProgressConsole
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.importing import is_importing
from dmls_ray.util.text import did_you_mean
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload

Axes = Mapping[str, Any]


def sweep(
    train: str | Callable[..., Any] | Axes | None = None,
    axes: Axes | None = None,
    /,
    *,
    workload: str | None = None,
    name: str | None = None,
    axis: str | None = None,
    question: str = "",
    layout: str | None = None,
    mode: Mode = "bench",
    searcher: str = "grid",
    samples: int = 16,
    scheduler: Literal["asha", "median", "none"] = "asha",
    metric: str = "test_accuracy",
    goal: Literal["auto", "max", "min"] = "auto",
    repeats: int | None = None,
    within: float = 0.05,
    equivalent: float = 0.02,
    max_repeats: int = 30,
    budget: float | None = 60.0,
    race: bool = False,
    aim: Literal["throughput", "accuracy", "time-to-accuracy", "memory"] | None = None,
    order_seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    stale: bool = False,
    isolation: Isolation = "group",
    address: str | None = None,
    oversubscribe: bool = False,
    max_retries: int = 1,
    run_timeout: float | None = None,
    stall_timeout: float | None = 600.0,
    wait_for_ranks: float = 60.0,
    give_up_after: int = 2,
    recycle_above_mib: float | None = None,
    checkpoints: bool = False,
    save_weights: bool = False,
    trace: int = 0,
    tensorboard: Literal["live", "off"] = "live",
    dashboard: bool = False,
    verbose: bool = False,
    **unknown: object,
) -> Results:
    """Run every configuration of a grid that its results folder does not hold yet.

    ``sweep(axes)`` trains image classifiers. ``sweep(train, axes)`` calls a user-defined training function.
    ``sweep(axes, workload="NAME")`` runs a workload of another package.

    Args:
        train: `train(config, rank, emit)`, or its name, `module:function`. Left out for a workload.
        axes: field -> one value, or a sequence of values. The fields are those of `TrialConfig`, of which
            batch_per_rank or global_batch must be given; or those of the function's or the workload's configuration,
            and world_size, machines, ranks_per_machine, backend, launcher, device, threads_per_rank and seed.
            model may be a function or class, dataset one that returns the samples of a split, or a dict of those of
            "train" and "test".
        workload: Name of an installed workload; classification by default.
        name: Names the results folder, results/<name>; by default `sweep`, or the name of the function or workload.
        axis: Field that the sweep asks about; without it, the first that varies.
        question: Question that the sweep asks, in words; the report begins with it.
        layout: Name of a report's table that is printed at the end instead of the sweep's: machines, say.
        mode: bench: one run at a time, so that times can be compared; search: runs share the ranks, and poor ones are
            stopped early.
        searcher: Search mode: grid (every combination), random, or one of Ray Tune's: optuna, hyperopt, bayesopt, ...
        samples: Search mode: how many configurations a searcher other than grid proposes.
        scheduler: Search mode: rule by which poor runs are stopped after an epoch: Ray Tune's ASHA or its median rule.
        metric: Search mode: metric to optimize; any that the workload reports for an epoch.
        goal: Search mode: whether the metric is maximized or minimized; auto: by its entry in the registry;
            a metric without one is minimized if it is a loss.
        repeats: Runs of each trial, each with its own seed. auto, the default: 3, and then more until the comparisons
            are decided; in search mode 1.
        within: Half-width of an interval from which on a comparison needs no further repeat: 5% of a ratio, 0.05 of
            an accuracy.
        equivalent: Two trials whose interval shows that they differ by less are equal, and need no further repeat.
        max_repeats: Most repeats of a trial.
        budget: Time for repeats beyond the third, 90s, 20m or 2h, say; no block of repeats starts that would not end in
            it. none: no limit.
        race: Leave a trial out of further repeats once it is beaten for the --aim.
        aim: What trials race for: most throughput, highest accuracy, shortest time to --target-accuracy, least memory.
        order_seed: Seed of the order of runs within a block.
        out: Results folder, or its URI (s3://BUCKET/NAME, gs://BUCKET/NAME); without it, results/<sweep>.
        fresh: Start over in a new folder; nothing is deleted.
        stale: Include runs of earlier versions of your code and data in the results.
        isolation: group: one worker group serves all runs; per_run: a TorchTrainer a run, in fresh processes.
        address: Ray cluster to join; without it RAY_ADDRESS, a cluster that runs on this machine, or a new one.
        oversubscribe: Allow more ranks than CPU cores.
        max_retries: How often a run that was killed or timed out is started again.
        run_timeout: Seconds that an attempt at a run may take; without it, no limit.
        stall_timeout: Seconds without an optimizer step, a test batch or an event after which a run is ended, and
            without a request for work after which an idle rank is replaced; none: no limit.
        wait_for_ranks: Seconds that a run waits for ranks whose machine has left, before it is skipped; above 600,
            also how long a sweep waits for a full cluster.
        give_up_after: Number of equal failures of a trial in a row after which its further repeats are skipped.
        recycle_above_mib: Resident set above which a rank's process is replaced between two runs; without it, never.
        checkpoints: Save each run after each epoch, and resume it there if it is cut short.
        save_weights: Keep the final weights of each run: weights.pt in its folder below runs/, with weights.json,
            which says what opens them in plain PyTorch.
        trace: Number of first repeats of each trial whose ranks are traced by torch.profiler for a few further steps,
            which no time contains: trace-rank0.json.gz, ... in the run's folder below runs/, linked from the report.
        tensorboard: live: write files for TensorBoard while runs go on, into <out>/tensorboard.
        dashboard: Show Ray's dashboard, on the loopback interface.
        verbose: Show what Ray and the ranks print.

    Returns:
        The runs of this grid, as DataFrames: `.runs`, `.ranks`, `.epochs`.

    Raises:
        InputError: the sweep cannot be run as it was asked for; nothing was started, and nothing is lost.
    """
    arguments = locals()
    if is_importing():
        raise ConfigError("sweep() was called while its module was imported; put it under if __name__ == '__main__'.")
    chosen, axes = _workload_and_axes(train, axes, workload)
    if unknown:
        raise _unknown_option(next(iter(unknown)), chosen)

    given = {spec.name: arguments[spec.name] for spec in fields(Options) if spec.name != "name"}
    options = Options(name=name or ("sweep" if chosen.name == registry.DEFAULT else folder_name(chosen)), **given)
    plan, space = plan_sweep(chosen.name_objects(axes), options, chosen)
    return run_plan(plan, options, PlainView(ProgressConsole()), space=space)


def _workload_and_axes(
    train: str | Callable[..., Any] | Axes | None, axes: Axes | None, workload: str | None
) -> tuple[Workload, Axes]:
    if isinstance(train, Mapping) and axes is None:
        return registry.workload(workload or registry.DEFAULT), train
    if train is None or isinstance(train, Mapping) or not isinstance(axes, Mapping):
        raise ConfigError("sweep() takes axes, or a training function and its axes: sweep(train, {'lr': [0.1, 0.01]}).")
    if workload is not None:
        raise ConfigError(f"workload={workload} and a training function are both given; give one of them.")
    return registry.workload_of_function(train, axes), axes


def _unknown_option(name: str, workload: Workload) -> ConfigError:
    if name in workload.schema().specs:
        return ConfigError(f"{name} is no option of sweep but a field of {workload.name}; put it into the axes.")
    names = ["workload", *(spec.name for spec in fields(Options))]
    return ConfigError(f"{name} is no option of sweep; {did_you_mean(name, names)}the options are {', '.join(names)}.")
