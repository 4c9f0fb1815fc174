"""`main`, the command line of every sweep script: flags, one line for bad input, table and answer at the end."""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dmls_ray.cli.best_of_search import BestOfSearch
from dmls_ray.cli.console import print_answer, print_table, say
from dmls_ray.cli.encoding import use_utf8
from dmls_ray.cli.parser import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Parser
from dmls_ray.cli.request import Preset as Preset
from dmls_ray.cli.request import Request, parse_request
from dmls_ray.config.grid import Plan, configs_of
from dmls_ray.config.options import Options
from dmls_ray.execution.planning import finished_run_ids, results_location, search_minimizes
from dmls_ray.execution.run_plan import check_plan, run_plan
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError, HeadLostError, InputError, NotKeptError, WorkerGroupError
from dmls_ray.util.module_path import leave_out_folder
from dmls_ray.util.uri import below
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload

if TYPE_CHECKING:
    from dmls_ray.analysis.results import Results


def main(preset: Preset, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a sweep from the command line, and exit.

    The exit code is 0 when every run has an answer (ok, oom, diverged, skipped), 1 when one ended in error, killed
    or timeout or could not be written or uploaded, or when all were skipped, 2 for bad input, and 130 after Ctrl-C.

    Args:
        preset: what the script asks.
        arguments: the command line without the program; by default that of sys.argv.
    """
    if arguments is None:
        use_utf8()
    if not preset.has_modules:
        leave_out_folder(os.path.dirname(os.path.realpath(sys.argv[0])))
    # A job that is stopped by SIGTERM keeps its runs, as after Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = Parser(
        description=inspect.cleandoc(preset.description or preset.question),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    try:
        sys.exit(_run(parse_request(parser, preset, words)))
    except InputError as error:
        parser.error(str(error))
    except HeadLostError as error:
        _exit_now(error)
    except (NotKeptError, WorkerGroupError) as error:
        parser.exit(EXIT_FAILED, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        print(_stopped(), file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _run(request: Request) -> int:
    plan, space, left_out = request.plan()
    options = request.options
    console = ProgressConsole()
    if left_out:
        say(console, left_out)
    if request.dry_run:
        return _show_plan(plan, options, request.workload, console)
    from dmls_ray.cli.progress import make_view

    try:
        with make_view(console) as view:
            results = run_plan(plan, options, view, space=space, on_stuck=functools.partial(_exit_now, options=options))
    except KeyboardInterrupt:
        print(_stopped(options), file=sys.stderr)
        return EXIT_INTERRUPTED
    best_of_search = functools.partial(
        BestOfSearch, program=[sys.argv[0], *request.workload_words], schema=request.workload.schema(),
        options=options, script_fields=request.script_fields, set_fields=request.set_fields, repeats=plan.repeats,
    )  # fmt: skip
    return _show_results(results, plan, options, console, best_of_search)


def _show_plan(plan: Plan, options: Options, workload: Workload, console: ProgressConsole) -> int:
    """Print the plan and start nothing; returns the exit code.

    Raises:
        InputError: as the sweep itself would.
    """
    # Imported here so that a sweep reaches its first line sooner.
    from dmls_ray.analysis.results import Results, load
    from dmls_ray.cluster.connect import cluster_at
    from dmls_ray.cluster.resources import check_accelerator, local_resources
    from dmls_ray.execution.blocks import blocks_of
    from dmls_ray.execution.estimate import describe_estimate, describe_further_blocks
    from dmls_ray.execution.identities import Identities
    from dmls_ray.execution.jobs import JobFactory
    from dmls_ray.execution.version_notes import describe_nothing_to_run, describe_repeated, reasons_to_repeat
    from dmls_ray.storage.location import records_at

    location = results_location(options)
    records, identities = records_at(location), Identities(workload)
    check_plan(plan, options, records, location, identities)
    if options.uses_searcher:
        say(console, f"{options.searcher} proposes {options.samples} runs, one after the other, into {location}.")
        return EXIT_OK

    here = local_resources()
    joined = cluster_at(options.address, lambda note: say(console, note))
    jobs = JobFactory(here, options, workload, Path(), identities, here.holds_gpus(configs_of(plan.runs)))
    plan = plan.skip_infeasible(functools.partial(jobs.infeasible_reason, anywhere=joined is not None))
    finished = finished_run_ids(plan, records, options, identities)

    def results_so_far() -> Results:
        results = load(location) if records else Results(Path(), [])
        planned = {run.run_id for run in plan.runs}
        results = results.of([record for record in results.records if record.run_id in planned])
        results.until = options.until
        return results

    blocks = blocks_of(plan, options.until, options.axis, finished, results_so_far)
    pending = blocks.next()
    if joined is None:
        check_accelerator(here, configs_of(pending))
    shown = [run for run in plan.runs if run in pending or run.run_id in finished]
    count = f"{len(shown)} runs in {1 + max(run.repeat for run in shown)} blocks"
    if options.until is not None:
        count += f" (up to {len(plan.runs)} in {plan.repeats})"
    say(console, f"{count}, order seed {plan.order_seed}, into {location}:")
    reasons = reasons_to_repeat(pending, records, identities)
    for run in shown:
        again = f"to run again: {reasons[run.run_id]}" if run.run_id in reasons else "to run"
        state = "done" if run.run_id in finished else f"skipped: {run.skip}" if run.skip else again
        say(console, f"{run.order + 1:4}  seed {run.seed:<7} {run.label(plan.varied)}  {state}")
    if not pending:
        say(console, describe_nothing_to_run(plan, records, identities, blocks.reason))
        return EXIT_OK
    if blocks.reason:
        say(console, blocks.reason)
    if repeated := describe_repeated(pending, records, identities):
        say(console, repeated)
    say(console, describe_estimate(plan, pending, records))
    if options.until is not None and any(not run.skip for run in pending):
        say(console, describe_further_blocks(plan, pending, results_so_far().records, options.until))
    if joined is not None:
        say(console, f"The cluster ({joined}) was not asked: a run that does not fit there will be skipped.")
    return EXIT_OK


def _show_results(
    results: Results,
    plan: Plan,
    options: Options,
    console: ProgressConsole,
    best_of_search: Callable[..., BestOfSearch],
) -> int:
    from dmls_ray.analysis.export.files import DERIVED_FILES, derived_files_are_current
    from dmls_ray.analysis.summary.search import best_first
    from dmls_ray.analysis.summary.sweep_summary import SweepQuestion, SweepSummary
    from dmls_ray.analysis.table.layouts import all_layouts
    from dmls_ray.analysis.table.shown import shown_columns, spare_heads
    from dmls_ray.cli.saved_weights import describe_saved_weights

    searched = options.mode == "search"
    saves_weights = registry.workload_of(plan.runs[0].values).saves_weights
    question = SweepQuestion(
        text=options.question, varied=plan.varied, axis=options.axis, changed=plan.changed,
        minimizes=search_minimizes(options), metric=options.metric if searched else None,
    )  # fmt: skip
    reading = SweepSummary(results, question)
    elsewhere = f"dmls-ray table {shlex.quote(results.where)} --format csv"
    shown = shown_columns(reading.table)
    frame, notes = reading.table.frame(shown.columns), [*reading.table.notes, *shown.notes(results.where)]
    spare = shown.spare
    if options.layout:
        layout = all_layouts()[options.layout](results)
        frame, notes, spare = layout.frame, [*layout.notes], spare_heads()
    print_table(frame, console, spare=spare, elsewhere=elsewhere)
    for note in notes:
        say(console, note, style="dim")
    say(console, "")
    print_answer(reading.answer, console)
    say(console, "")
    if searched:
        for row in best_first(reading.table, options.metric, minimizes=question.minimizes)[:1]:
            best = best_of_search(config=row.records[0].config, where=results.where)
            try:
                say(console, f"Train the best configuration with other seeds:\n  {best.confirm}")
                if saves_weights:
                    say(console, f"Train it for its weights:\n  {best.retrain}")
            except ConfigError as error:
                say(console, str(error))
            say(console, "")
    if options.save_weights:
        own = ["Weights: a training function saves its own, into rank.artifacts.folder."]
        for line in [*(describe_saved_weights(results) if saves_weights else own), ""]:
            say(console, line)
    if derived_files_are_current(results.folder):
        files = ", ".join(DERIVED_FILES[1:])
        report = below(results.where, "report.html")
        say(console, f"Report: {report}; next to it {files}, runs.jsonl and sweep.json")
    is_there = results.mirror is None or not results.mirror.is_kept
    outcomes = [record.outcome for record in results.records]
    is_answered = all(outcome.is_answer() for outcome in outcomes) and set(outcomes) != {Outcome.SKIPPED}
    return EXIT_OK if is_there and is_answered else EXIT_FAILED


def _exit_now(error: HeadLostError | KeyboardInterrupt, *, options: Options | None = None) -> NoReturn:
    """End this process at once: at a normal exit, Ray would wait for the head."""
    is_interrupted = isinstance(error, KeyboardInterrupt)
    print(_stopped(options) if is_interrupted else error, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(EXIT_INTERRUPTED if is_interrupted else EXIT_FAILED)


def _stopped(options: Options | None = None) -> str:
    if options is None:
        return "Stopped. The runs that had ended are kept; the same command runs the others."
    if options.fresh:  # its folder was chosen when the sweep began
        again = "the same command, with --out on its folder in place of --fresh, runs the others"
        return f"Stopped. The runs that had ended are kept; {again}."
    from dmls_ray.storage.location import records_at

    location = results_location(options)
    if isinstance(location, Path) and not records_at(location):
        return "Stopped. No run had ended; the same command runs all."
    shown = f"dmls-ray table {shlex.quote(str(location))}"
    return f"Stopped. The runs that had ended are kept: `{shown}` shows them, and the same command runs the others."


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
