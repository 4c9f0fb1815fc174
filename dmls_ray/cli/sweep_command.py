"""`run`, the command of a sweep in its own process: flags, one line for bad input, table and answer at the end."""

from __future__ import annotations

import contextlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from dmls_ray.analysis.results import Results
from dmls_ray.cli.console import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Parser, print_json, say
from dmls_ray.cli.largest import describe_knees, field_of_largest, with_largest
from dmls_ray.cli.request import Request, parse_request
from dmls_ray.cli.sweep_flags import SweepParser
from dmls_ray.cli.sweep_script import Preset
from dmls_ray.config.grid import Plan
from dmls_ray.config.options import Options, Until
from dmls_ray.execution.planning import plan_sweep, results_location
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.execution.supervisor import EXIT_LOST, Heartbeat, stopped_text
from dmls_ray.execution.view import ProgressConsole, View
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ClusterError, ClusterLostError, InputError, NotKeptError, WorkerGroupError
from dmls_ray.util.importing import leave_out_folder
from dmls_ray.util.interpreter import stop_on_signals

EXIT_TIMEOUT_S = 60.0
"""How long the end of the process may take once the sweep is over."""


def run(preset: Preset | str, words: list[str], heartbeat: Heartbeat, *, program: Sequence[str]) -> NoReturn:
    """Run the sweep in this process, and exit.

    Args:
        preset: what the script asks, or its name.
        words: the command line without the program.
        heartbeat: reports to the supervisor.
        program: the words of the command line before those.
    """
    stop_on_signals()
    if isinstance(preset, str):
        from dmls_ray.cli.presets import PRESETS

        preset = PRESETS[preset]
        # A module of the user may have the name of a script, as optimizer.py.
        leave_out_folder(os.path.dirname(os.path.realpath(program[0])))
    try:
        _run_command(preset, words, heartbeat, program)
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


def _run_command(preset: Preset, words: list[str], heartbeat: Heartbeat, program: Sequence[str]) -> NoReturn:
    name = " ".join([os.path.basename(program[0]), *program[1:]])
    parser = SweepParser(name, inspect.cleandoc(preset.description or preset.question))
    try:
        sys.exit(pkgutil.resolve_name(preset.command)(parser, preset, words, heartbeat))
    except InputError as error:
        if heartbeat.is_restart and isinstance(error, ClusterError):
            raise ClusterLostError(str(error)) from error
        parser.error(str(error))
    except (NotKeptError, WorkerGroupError) as error:
        parser.exit(EXIT_FAILED, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        if not heartbeat.is_supervised:
            reported = heartbeat.reported
            line = stopped_text(reported.get("folder", ""), is_fresh=reported.get("is_fresh", False))
            print(line, file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def sweep(parser: Parser, preset: Preset, words: list[str], heartbeat: Heartbeat) -> int:
    """Run the grid or the search that a command line asks for; returns the exit code.

    Raises:
        InputError: a word or a combination of words is wrong; nothing was started.
    """
    request = parse_request(parser, preset, [*preset.given, *words])
    name = field_of_largest(request.axes)
    if not name:
        return _run(request, heartbeat, ending=preset.ending)
    request = with_largest(request, name, begun(request, heartbeat), heartbeat)
    return _run(request, heartbeat, ending=preset.ending, largest=name)


def begun(request: Request, heartbeat: Heartbeat) -> Options:
    """The options with which runs start, or start again: another start continues in the same new folder."""
    options = request.options
    if options.fresh:
        options = replace(options, out=heartbeat.folder or str(results_location(options)), fresh=False)
        heartbeat.report(is_fresh=True)
    heartbeat.report(folder=str(results_location(options)), restarts=request.restarts)
    return options


def show_plan_of(request: Request) -> int:
    """Print what would be run; returns the exit code."""
    from dmls_ray.cli.sweep_output import show_plan

    plan, _ = plan_sweep(request.axes, request.options, request.workload, variants=request.variants)
    show_plan(plan, request.options, ProgressConsole(is_aside=request.is_json))
    return EXIT_OK


def measure(request: Request, heartbeat: Heartbeat) -> tuple[Results, Plan]:
    """Run what a command line asks for."""
    options = request.options
    plan, space = plan_sweep(request.axes, options, request.workload, variants=request.variants)
    options = begun(request, heartbeat)
    console = ProgressConsole(is_aside=request.is_json)
    is_live = console.is_terminal and not console.is_dumb_terminal
    with View(console, is_live=is_live) as view:
        return run_plan(plan, options, view, space=space, heartbeat=heartbeat), plan


def _run(request: Request, heartbeat: Heartbeat, *, ending: str, largest: str = "") -> int:
    """Run a sweep and print what it has found; `largest` is a field whose largest value was looked for."""
    options, console = request.options, ProgressConsole(is_aside=request.is_json)
    if request.left_out:
        say(console, f"Left out: {', '.join(request.left_out)} (not for {request.workload.schema().title}).")
    if request.dry_run:
        return show_plan_of(request)
    results, plan = measure(request, heartbeat)
    from dmls_ray.analysis.json_objects import Sweep
    from dmls_ray.cli.sweep_output import summary_of

    summary = summary_of(results, plan, options)
    knees: list[str] = []
    if largest:
        knees += describe_knees(summary.table, largest, options.until or Until())
    if request.is_json:
        print_json(Sweep(**summary.json_fields(), smallest_fast=knees))
    else:
        pkgutil.resolve_name(ending)(results, plan, request, console)
        for line in knees:
            say(console, line)
    is_kept_here = results.mirror is not None and results.mirror.is_kept
    outcomes = {record.outcome for record in results.records}
    is_answered = all(outcome.is_answer() for outcome in outcomes) and outcomes != {Outcome.SKIPPED}
    return EXIT_OK if is_answered and not is_kept_here else EXIT_FAILED
