"""`run`, the command of a sweep in its own process: flags, one line for bad input, table and answer at the end."""

from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dmls_ray.cli.best_of_search import BestOfSearch
from dmls_ray.cli.console import print_answer, print_table, say
from dmls_ray.cli.parser import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Parser
from dmls_ray.cli.preset import Preset
from dmls_ray.cli.request import Request, parse_request
from dmls_ray.config.grid import Plan
from dmls_ray.config.options import Options
from dmls_ray.execution.heartbeat import EXIT_LOST, Heartbeat
from dmls_ray.execution.planning import results_location, search_minimizes
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import (
    ClusterError,
    ClusterLostError,
    ConfigError,
    InputError,
    NotKeptError,
    WorkerGroupError,
)
from dmls_ray.util.interrupts import stop_on_signals
from dmls_ray.util.module_path import leave_out_folder
from dmls_ray.util.uri import below
from dmls_ray.workloads import registry

if TYPE_CHECKING:
    from dmls_ray.analysis.results import Results

EXIT_TIMEOUT_S = 60.0
"""How long the end of the process may take once the sweep is over."""


def run(preset: Preset, arguments: Sequence[str] | None, heartbeat: Heartbeat) -> NoReturn:
    """Run the sweep in this process, and exit.

    Args:
        preset: what the script asks.
        arguments: the command line without the program; None for that of sys.argv.
        heartbeat: reports to the supervisor.
    """
    stop_on_signals()
    try:
        _run_command(preset, arguments, heartbeat)
    except ClusterLostError as error:
        heartbeat.report(ended=True, reason=str(error).partition(". ")[0], within_s=None)
        if not heartbeat.is_supervised:
            print(error, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # At a normal exit, Ray would wait for the head.
        os._exit(EXIT_LOST)
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # the supervisor is gone, and this process ends anyway
            heartbeat.report(ended=True, within_s=EXIT_TIMEOUT_S)


def _run_command(preset: Preset, arguments: Sequence[str] | None, heartbeat: Heartbeat) -> NoReturn:
    if not preset.has_modules:
        leave_out_folder(os.path.dirname(os.path.realpath(sys.argv[0])))
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = Parser(
        description=inspect.cleandoc(preset.description or preset.question),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    try:
        sys.exit(_run(parse_request(parser, preset, words), heartbeat))
    except InputError as error:
        if heartbeat.is_restart and isinstance(error, ClusterError):
            raise ClusterLostError(str(error)) from error
        parser.error(str(error))
    except (NotKeptError, WorkerGroupError) as error:
        parser.exit(EXIT_FAILED, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        print("Stopped. The runs that had ended are kept; the same command runs the others.", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _run(request: Request, heartbeat: Heartbeat) -> int:
    plan, space, left_out = request.plan()
    options = request.options
    console = ProgressConsole()
    if left_out:
        say(console, left_out)
    if request.dry_run:
        from dmls_ray.cli.dry_run import show_plan

        show_plan(plan, options, request.workload, console)
        return EXIT_OK
    from dmls_ray.cli.progress import make_view

    heartbeat.report(restarts=request.restarts)
    started = _with_folder(options, heartbeat)
    try:
        with make_view(console) as view:
            results = run_plan(plan, started, view, space=space, heartbeat=heartbeat)
    except KeyboardInterrupt:
        print(_stopped(options, started), file=sys.stderr)
        return EXIT_INTERRUPTED
    best_of_search = functools.partial(
        BestOfSearch, program=[sys.argv[0], *request.workload_words], schema=request.workload.schema(),
        options=options, script_fields=request.script_fields, set_fields=request.set_fields, repeats=plan.repeats,
    )  # fmt: skip
    return _show_results(results, plan, options, console, best_of_search)


def _show_results(
    results: Results,
    plan: Plan,
    options: Options,
    console: ProgressConsole,
    best_of_search: Callable[..., BestOfSearch],
) -> int:
    from dmls_ray.analysis.export.files import DERIVED_FILES, derived_files_are_current
    from dmls_ray.analysis.findings.question import SweepQuestion
    from dmls_ray.analysis.findings.search import best_first
    from dmls_ray.analysis.summary import SweepSummary
    from dmls_ray.analysis.table.layouts import render
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
        layout = render(results, options.layout)
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


def _with_folder(options: Options, heartbeat: Heartbeat) -> Options:
    """The options with the folder that `--fresh` makes: another start of this sweep continues in the same one."""
    if not options.fresh:
        return options
    folder = heartbeat.folder or str(results_location(options))
    heartbeat.report(folder=folder)
    return replace(options, out=folder, fresh=False)


def _stopped(options: Options, started: Options) -> str:
    if options.fresh:
        again = "the same command, with --out on its folder in place of --fresh, runs the others"
        return f"Stopped. The runs that had ended are kept; {again}."
    from dmls_ray.storage.location import records_at

    location = results_location(started)
    if isinstance(location, Path) and not records_at(location):
        return "Stopped. No run had ended; the same command runs all."
    shown = f"dmls-ray table {shlex.quote(str(location))}"
    return f"Stopped. The runs that had ended are kept: `{shown}` shows them, and the same command runs the others."
