"""`--dry-run`: the plan of a sweep with the state of each run and an estimate of the time."""

from __future__ import annotations

import functools
from pathlib import Path

from dmls_ray.cli.console import Console, say
from dmls_ray.cli.parser import EXIT_OK
from dmls_ray.config.grid import Plan, configs_of
from dmls_ray.config.options import Options
from dmls_ray.workloads.base import Workload


def show_plan(plan: Plan, options: Options, workload: Workload, console: Console) -> int:
    """Print the plan and start nothing; returns the exit code.

    Raises:
        InputError: as the sweep itself would.
    """
    # Imported here so that a sweep reaches its first line sooner.
    from dmls_ray.cluster.connect import cluster_at
    from dmls_ray.cluster.resources import local_resources
    from dmls_ray.execution.estimate import describe_estimate
    from dmls_ray.execution.jobs import JobFactory
    from dmls_ray.execution.planning import finished_run_ids, results_location
    from dmls_ray.storage.location import records_at

    location = results_location(options)
    if options.uses_searcher:
        say(console, f"{options.searcher} proposes {options.samples} runs, one after the other, into {location}.")
        return EXIT_OK

    records = records_at(location)
    here = local_resources()
    joined = cluster_at(options.address)
    jobs = JobFactory(here, options, workload, Path(), here.holds_gpus(configs_of(plan.runs)))
    plan = plan.skip_infeasible(functools.partial(jobs.infeasible_reason, anywhere=joined is not None))
    finished = finished_run_ids(records, options)
    pending = plan.pending(finished)
    workload.check(configs_of(pending))

    say(console, f"{len(plan.runs)} runs in {plan.repeats} blocks, order seed {plan.order_seed}, into {location}:")
    for run in plan.runs:
        state = "done" if run.run_id in finished else f"skipped: {run.skip}" if run.skip else "to run"
        say(console, f"{run.order + 1:4}  seed {run.seed:<7} {run.label(plan.varied)}  {state}")
    say(console, describe_estimate(plan, pending, records))
    if joined is not None:
        say(console, f"The cluster ({joined}) was not asked: a run that does not fit there will be skipped.")
    return EXIT_OK
