"""`run`, the command of a sweep in its own process: flags, one line for bad input, table and answer at the end."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from dmls_ray.cli.best_of_search import BestOfSearch
from dmls_ray.cli.console import say
from dmls_ray.cli.parser import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Parser
from dmls_ray.cli.preset import Preset
from dmls_ray.cli.request import Request, parse_request
from dmls_ray.config.grid import Plan
from dmls_ray.config.options import Options
from dmls_ray.execution.heartbeat import EXIT_LOST, Heartbeat
from dmls_ray.execution.planning import results_location, search_minimizes
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.execution.supervisor import STOPPED
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
    from dmls_ray.analysis.summary import SweepSummary

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
        if not heartbeat.is_supervised:
            print(STOPPED, file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _run(request: Request, heartbeat: Heartbeat) -> int:
    plan, space = request.plan()
    options = request.options
    console = ProgressConsole()
    if request.left_out:
        say(console, f"Left out: {', '.join(request.left_out)} (not for {request.workload.schema().title}).")
    if request.dry_run:
        from dmls_ray.cli.dry_run import show_plan

        show_plan(plan, options, request.workload, console)
        return EXIT_OK
    from dmls_ray.cli.progress import make_view

    started = _with_folder(options, heartbeat)
    again = "the same command"
    if options.fresh:
        again += ", with --out on its folder in place of --fresh,"
    shown = f"dmls-ray table {shlex.quote(str(results_location(started)))}"
    stopped = f"Stopped. The runs that had ended are kept: `{shown}` shows them, and {again} runs the others."
    heartbeat.report(restarts=request.restarts, stopped=stopped)
    try:
        with make_view(console) as view:
            results = run_plan(plan, started, view, space=space, heartbeat=heartbeat)
    except KeyboardInterrupt:
        if not heartbeat.is_supervised:
            print(stopped, file=sys.stderr)
        return EXIT_INTERRUPTED
    _show_results(results, plan, request, console)
    is_kept_here = results.mirror is not None and results.mirror.is_kept
    outcomes = {record.outcome for record in results.records}
    is_answered = all(outcome.is_answer() for outcome in outcomes) and outcomes != {Outcome.SKIPPED}
    return EXIT_OK if is_answered and not is_kept_here else EXIT_FAILED


def _with_folder(options: Options, heartbeat: Heartbeat) -> Options:
    """The options with the folder that `--fresh` makes: another start of this sweep continues in the same one."""
    if not options.fresh:
        return options
    folder = heartbeat.folder or str(results_location(options))
    heartbeat.report(folder=folder)
    return replace(options, out=folder, fresh=False)


def _show_results(results: Results, plan: Plan, request: Request, console: ProgressConsole) -> None:
    """Print the table, the answer, how to go on, and where the files are."""
    from dmls_ray.analysis.export.files import DERIVED_FILES, derived_files_are_current
    from dmls_ray.analysis.findings.question import SweepQuestion
    from dmls_ray.analysis.summary import SweepSummary
    from dmls_ray.cli.commands.tables import print_summary
    from dmls_ray.cli.saved_weights import describe_saved_weights

    options = request.options
    question = SweepQuestion(
        text=options.question, varied=plan.varied, axis=options.axis, changed=plan.changed,
        minimizes=search_minimizes(options), metric=options.metric if options.mode == "search" else None,
    )  # fmt: skip
    summary = SweepSummary(results, question)
    print_summary(summary, "text", console, by=options.layout)
    say(console, "")
    if question.metric is not None:
        _show_best(summary, plan, request, console)
    if options.save_weights:
        lines = ["Weights: a training function saves its own, into rank.artifacts.folder."]
        if registry.workload_of(plan.runs[0].values).saves_weights:
            lines = describe_saved_weights(results)
        say(console, "\n".join([*lines, ""]))
    if derived_files_are_current(results.folder):
        files = ", ".join(DERIVED_FILES[1:])
        report = below(results.where, "report.html")
        say(console, f"Report: {report}; next to it {files}, runs.jsonl and sweep.json")


def _show_best(summary: SweepSummary, plan: Plan, request: Request, console: ProgressConsole) -> None:
    """Print the commands that train the best configuration of a search again."""
    from dmls_ray.analysis.findings.answer import best_first

    options, results = request.options, summary.results
    for row in best_first(summary.table, options.metric)[:1]:
        best = BestOfSearch(
            config=row.records[0].config, repeats=plan.repeats, where=results.where, request=request,
            program=sys.argv[0],
        )  # fmt: skip
        try:
            say(console, f"Train the best configuration with other seeds:\n  {best.confirm}")
            if row.workload.saves_weights:
                say(console, f"Train it for its weights:\n  {best.retrain}")
        except ConfigError as error:
            say(console, str(error))
        say(console, "")
