"""What is printed of a sweep: its plan (`--dry-run`); at its end table, answer, best configuration and files."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dmls_ray.analysis.export.files import DERIVED_FILES, derived_files_are_current
from dmls_ray.analysis.findings.answer import best_first
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.results import Results, load
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.words_on_training import set_up_lines
from dmls_ray.cli.commands.tables import print_summary
from dmls_ray.cli.console import say
from dmls_ray.cli.request import Request
from dmls_ray.cluster.connect import cluster_at
from dmls_ray.cluster.resources import check_accelerator, local_resources
from dmls_ray.config.grid import SEED_STRIDE, Plan, Run, configs_of, skipped_values
from dmls_ray.config.options import FLAGS, SEARCH_ONLY, Options
from dmls_ray.config.sweep_file import SWEEP_FILE, sweep_file_text
from dmls_ray.config.value_texts import duration
from dmls_ray.execution.jobs import JobFactory
from dmls_ray.execution.next_runs import NextRuns, kept_records
from dmls_ray.execution.planning import judged_by, minimizes, results_location
from dmls_ray.execution.run_plan import check_plan
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.records.model import Durations
from dmls_ray.storage.location import records_at
from dmls_ray.util.uri import below, is_uri
from dmls_ray.workloads.base import Workload

CONFIRMING_REPEATS = 5

_NOT_KEPT = {*SEARCH_ONLY, "search", "repeats", "order_seed", "out", "fresh", "stale", "save_weights", "trace"}
"""Options of a search that its best configuration is not trained with."""

_START_UP_S = 15.0
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
        say(console, f"{options.searcher} proposes {options.trials} runs, one after the other, into {location}.")
        return

    here = local_resources()
    joined = cluster_at(options.address)
    jobs = JobFactory.of(plan, here, options, Path())
    plan = plan.skip_infeasible(functools.partial(jobs.infeasible_reason, anywhere=joined is not None))
    results = load(location) if records else Results(Path(), [])
    planned = plan.run_ids
    results = results.of(
        [record for record in kept_records(plan, results.records, options) if record.run_id in planned]
    )
    results.until = options.until
    results.judged_by = judged_by(options)
    state = NextRuns(plan, options, records, lambda: results)
    if joined is None:
        check_accelerator(here, configs_of(state.missing))

    for line in skipped_values(plan):
        say(console, line)
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
    if estimate := describe_estimate(state):
        say(console, estimate)
    if state.missing and joined is not None:
        say(console, f"The cluster ({joined}) was not contacted; runs that do not fit there will be skipped.")


def describe_estimate(state: NextRuns) -> str:
    """How long the runs that come first take, and at most all that may follow, by those that the folder has.

    Empty where no run starts, and for a search, whose runs go side by side.
    """
    if state.options.search or all(run.skip for run in state.missing):
        return ""
    durations = Durations(state.records)
    first, most = _seconds(state.missing, durations), _seconds(state.candidates, durations)
    if not first:
        return "No estimate: no run has been measured here yet."
    if state.options.budget is not None:
        most = min(most, first + state.options.budget)
    further = f", up to {duration(_START_UP_S + most)} with further repeats" if most > first else ""
    is_of_others = not all(run.skip or durations.has(run.trial_id) for run in state.candidates)
    of_others = " Settings without a measurement are assumed to be as fast as the others." if is_of_others else ""
    return (
        f"About {duration(_START_UP_S + first)}{further}, start-up included, judging by earlier runs here.{of_others}"
    )


def _seconds(runs: Iterable[Run], durations: Durations) -> float:
    """Seconds that the feasible runs are expected to take, one after the other."""
    return sum(durations.expected_s(run.trial_id) or 0.0 for run in runs if not run.skip)


def summary_of(results: Results, plan: Plan, options: Options) -> SweepSummary:
    """The answer to what was asked."""
    question = SweepQuestion(
        text=options.question,
        varied=plan.varied,
        given=plan.axes,
        axis=options.axis,
        changed=plan.changed,
        minimizes=minimizes(options),
        metric=options.searched_metric if options.search else None,
    )
    return SweepSummary(results, question)


def show_results(
    results: Results, plan: Plan, request: Request, console: ProgressConsole, *, has_verdict: bool = False
) -> None:
    """Print the table, the answer, how to go on, and where the files are; a verdict may follow."""
    options = request.options
    summary = replace(summary_of(results, plan, options), has_verdict=has_verdict)
    print_summary(summary, "text", console, by=options.layout)
    say(console, "")
    if options.search:
        _show_best(summary, plan, request, console)
    if options.save_weights:
        where = "a training function saves its own, into rank.artifacts.folder."
        if request.workload.saves_weights:
            where = describe_saved_weights(results)
        say(console, f"Weights: {where}\n")
    if derived_files_are_current(results.folder):
        files = ", ".join(DERIVED_FILES[1:])
        report = below(results.where, "report.html")
        say(console, f"Report: {report}; next to it {files}, runs.jsonl and sweep.json")
        if plan.asked is not None:
            say(console, f"Again: dmls-ray sweep {shlex.quote(below(results.where, SWEEP_FILE))}")
        further = describe_further_commands(summary, is_search=options.search)
        for line in [*further, *set_up_lines(next(iter(summary.table.rows), None), options.preload)]:
            say(console, line)


def describe_further_commands(summary: SweepSummary, *, is_search: bool) -> list[str]:
    """What ranks the configurations, where one was measured, and what shows why a run failed, each in a line."""
    rows, where = summary.table.rows, shlex.quote(summary.results.where)
    lines = []
    if any(row.counted for row in rows) and len(rows) > 1 and not is_search:
        lines.append(f"All configurations, ranked: dmls-ray advise {where}")
    failed = [record for row in rows for record in row.records if record.outcome.is_cut_short()]
    if failed:
        lines.append(f"Log of a run that failed: dmls-ray show {failed[0].run_id} {where}")
    return lines


def describe_saved_weights(results: Results) -> str:
    """Where the weights of a sweep's runs are, and the Python that opens those of one."""
    files = [results.folder / record.folder / "weights.json" for record in results.records]
    file = next((file for file in files if file.exists()), None)
    if file is None:
        return "no run has any, because weights are saved at the end of a run; --fresh runs all of them again."
    lines = json.loads(file.read_text(encoding="utf-8")).get("python", [])
    where = f"weights.pt in the folders below {results.folder / 'runs'}; weights.json has the Python that opens each."
    return "\n".join([where, f"In {file.parent}:", *lines])


def _show_best(summary: SweepSummary, plan: Plan, request: Request, console: ProgressConsole) -> None:
    """Print the commands that train the best configuration of a search again."""
    metric = request.options.searched_metric
    rows = best_first(summary.table, metric)
    if not rows:
        say(
            console,
            f"No run that ended ok reported {metric}, so there is no best one; choose another metric with --metric.\n",
        )
        return
    described = describe_winner(request.workload, rows[0].records[0].config)
    if described is None:
        say(console, "Train the best configuration from Python, with the objects that it was searched with.\n")
        return
    seed, where = rows[0].records[0].seed, summary.results.where.rstrip("/")
    folder = below("results", where.rpartition("/")[2]) if is_uri(where) else where
    path = Path(f"{folder}-best.toml")
    text = sweep_file_text(
        {**described, "axes": {**described["axes"], "seed": seed + plan.repeats * SEED_STRIDE}},
        winner_options(request.options),
        repeats=CONFIRMING_REPEATS,
        out=f"{where}-best",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    command = f"dmls-ray sweep {shlex.quote(str(path))}"
    # The seed that won is one of the reasons why it did.
    say(console, f"Train the best configuration with other seeds:\n  {command}")
    if request.workload.saves_weights:
        weights = shlex.quote(f"{folder}-weights")
        flags = f"--seed {seed} --repeats 1 --save-weights --out {weights}"
        say(console, f"Train it for its weights:\n  {command} {flags}")
    say(console, "")


def describe_winner(workload: Workload, config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A recorded configuration as a sweep file has it; None where no file can say it."""
    axes = {}
    for name, spec in workload.schema().specs.items():
        # world_size and machines give ranks_per_machine.
        if name in ("seed", "ranks_per_machine") or name not in config:
            continue
        value = spec.check(config[name])  # a tuple is a list in a record
        if repr(value) != repr(spec.default):
            axes[name] = [value] if isinstance(value, tuple) else value
    return workload.describe_sweep(axes)


def winner_options(options: Options) -> Options:
    """The options that the best configuration of a search is trained with."""
    kept = {name: getattr(options, name) for name in FLAGS if name not in _NOT_KEPT}
    return Options(name=f"{options.name}-best", **kept)
