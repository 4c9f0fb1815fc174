"""`show_plan`, which prints what a sweep would run, and about how long it would take (`--dry-run`)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from dmls_ray.analysis.results import Results, load
from dmls_ray.cli.console import say
from dmls_ray.cluster.connect import cluster_at
from dmls_ray.cluster.resources import check_accelerator, local_resources
from dmls_ray.config.grid import Plan, Run, configs_of
from dmls_ray.config.options import Options
from dmls_ray.execution.folder_state import FolderState
from dmls_ray.execution.jobs import JobFactory
from dmls_ray.execution.planning import results_location
from dmls_ray.execution.run_plan import check_plan
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.records.model import Durations, RunRecord
from dmls_ray.storage.location import records_at

START_UP_S = 15.0
"""Seconds until Ray, the worker group and PyTorch have started, on two cores."""


def show_plan(plan: Plan, options: Options, console: ProgressConsole) -> None:
    """Print the plan and start nothing.

    Raises:
        InputError: as the sweep itself would.
    """
    location = results_location(options)
    records = records_at(location)
    check_plan(plan, options, records, location)
    if options.uses_searcher:
        say(console, f"{options.searcher} proposes {options.samples} runs, one after the other, into {location}.")
        return

    here = local_resources()
    joined = cluster_at(options.address)
    jobs = JobFactory.of(plan, here, options, Path())
    plan = plan.skip_infeasible(functools.partial(jobs.infeasible_reason, anywhere=joined is not None))
    results = load(location) if records else Results(Path(), [])
    planned = plan.run_ids
    results = results.of([record for record in results.records if record.run_id in planned])
    results.until = options.until
    state = FolderState(plan, options, records, lambda: results)
    if joined is None:
        check_accelerator(here, configs_of(state.missing))

    blocks = 1 + max(run.repeat for run in state.shown)
    count = f"{len(state.shown)} runs in {blocks} blocks"
    if options.until is not None:
        count += f" (up to {len(plan.runs)} in {plan.repeats})"
    say(console, f"{count}, order seed {plan.order_seed}, into {location}:")
    for run in state.shown:
        say(console, f"{run.order + 1:4}  seed {run.seed:<7} {run.label(plan.varied)}  {state.describe(run)}")
    if state.missing and state.reason:
        say(console, state.reason)
    if summary := state.summary():
        say(console, summary)
    if not state.missing:
        return
    say(console, describe_estimate(state.missing, records))
    if joined is not None:
        say(console, f"The cluster ({joined}) was not asked: a run that does not fit there will be skipped.")


def describe_estimate(pending: Sequence[Run], records: Sequence[RunRecord]) -> str:
    """How long the pending runs, of which there are some, will take, in a sentence that says how that is known."""
    feasible = [run for run in pending if not run.skip]
    if not feasible:
        return "Every run that is missing is skipped."
    durations = Durations(records)
    seconds = [durations.expected_s(run.trial_id) for run in feasible]
    if None in seconds:
        return "No run was measured here yet: no estimate."
    total = START_UP_S + sum(filter(None, seconds))
    return f"About {total:.0f} s, start-up included, by the {len(records)} runs measured here."
