"""`dmls-ray sweep WHAT`, and what all commands that start runs share: the plan, the runs, the exit code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from dmls_ray.analysis.json_objects import Sweep
from dmls_ray.analysis.results import Results
from dmls_ray.cli.call import Call
from dmls_ray.cli.console import EXIT_FAILED, EXIT_OK, print_json, say
from dmls_ray.cli.largest import describe_knees, field_of_largest, with_largest
from dmls_ray.cli.presets import PRESETS
from dmls_ray.cli.request import Request, parse_request
from dmls_ray.cli.sweep_flags import SweepParser
from dmls_ray.cli.sweep_output import show_plan, show_results, summary_of
from dmls_ray.cli.what import answers_help, folder_of, take_what
from dmls_ray.cluster.held_group import HeldGroup
from dmls_ray.config.grid import Plan
from dmls_ray.config.options import Options, Until
from dmls_ray.config.sweep_file import Preset, What, read_sweep_file
from dmls_ray.execution.planning import plan_sweep, results_location
from dmls_ray.execution.prober import Prober
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.execution.view import ProgressConsole, View
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.programs import is_program
from dmls_ray.util.text import did_you_mean

Show = Callable[[Results, Plan, Request, ProgressConsole], None]
"""Prints what a sweep has found."""


def sweep(call: Call) -> int:
    """usage: dmls-ray sweep WHAT [flags] [-- arguments of the script]

    Run WHAT for each combination of the values of its flags, several times with different seeds, and report
    which differences are real, where they come from, and what memory they take.

    WHAT is
      train.py          a training script, which runs unchanged: its own flags take several values
      -m package.train  the same for a module, as after python
      module:function   a training function
      sweep.toml        a file with all settings; each results folder has one
      batch_size, ...   a question about the built-in models: {presets}

    dmls-ray sweep WHAT --help lists the flags. A first look, without intervals: --repeats 1.
    Example: dmls-ray sweep train.py --batch-size 16 32 64 --world-size 1 2 -- --data /d --lr 3e-4
    """
    if answers_help(call, (sweep.__doc__ or "").format(presets=", ".join(PRESETS))):
        return EXIT_OK
    preset, what = asked_by(call)
    return answer(preset, call, what)


def asked_by(call: Call) -> tuple[Preset, What | None]:
    """What the first word of a command line asks, which becomes a part of the name of the call; and what it runs.

    Raises:
        ConfigError: it names nothing that can be run.
    """
    if call.words[0].endswith(".toml"):
        asked = read_sweep_file(call.words[0])
        call.take(1)
        return asked
    what = take_what(call)
    if is_program(what) or ":" in what:
        description = f"Sweep {what}: a flag with several values is an axis."
        preset = Preset(name=folder_of(what), description=description, workload=None)
        return preset, What(train=what)
    if what in PRESETS:
        return PRESETS[what], None
    way_out = f"give a script (train.py), a function (module:function) or one of {', '.join(PRESETS)}"
    raise ConfigError(f"{did_you_mean(what, [*PRESETS])}{way_out}.")


def answer(preset: Preset, call: Call, what: What | None = None, show: Show = show_results) -> int:
    """Run the grid or the search that a preset and a command line ask for; returns the exit code.

    Args:
        preset: what is asked where no flag says otherwise.
        call: the command line.
        what: what is run unless a flag says otherwise.
        show: prints what was found.

    Raises:
        InputError: a word or a combination of words is wrong; nothing was started.
    """
    request = parse_request(parser_of(preset, call), preset, call.words, what)
    largest = field_of_largest(request.axes)
    if largest:
        with probing(request, call) as prober:
            request = with_largest(request, largest, prober)
    options, console = request.options, ProgressConsole(is_aside=request.is_json)
    if request.left_out:
        say(console, f"Left out: {', '.join(request.left_out)} (not for {request.workload.schema().title}).")
    if request.dry_run:
        return print_plan(request)
    results, plan = measure(request, call)
    summary = summary_of(results, plan, options)
    knees: list[str] = []
    if largest:
        knees += describe_knees(summary.table, largest, options.until or Until())
    if request.is_json:
        print_json(Sweep(**summary.json_fields(), smallest_fast=knees))
    else:
        show(results, plan, request, console)
        for line in knees:
            say(console, line)
    is_kept_here = results.mirror is not None and results.mirror.is_kept
    outcomes = {record.outcome for record in results.records}
    is_answered = all(outcome.is_answer() for outcome in outcomes) and outcomes != {Outcome.SKIPPED}
    return EXIT_OK if is_answered and not is_kept_here else EXIT_FAILED


def parser_of(preset: Preset, call: Call) -> SweepParser:
    """The parser of a command that asks what a preset says."""
    return SweepParser(call.name, inspect.cleandoc(preset.description or preset.question))


def print_plan(request: Request) -> int:
    """Print what would be run; returns the exit code."""
    plan, _ = plan_sweep(request.axes, request.options, request.workload, variants=request.variants)
    show_plan(plan, request.options, ProgressConsole(is_aside=request.is_json))
    return EXIT_OK


def measure(request: Request, call: Call) -> tuple[Results, Plan]:
    """Run what a command line asks for."""
    plan, space = plan_sweep(request.axes, request.options, request.workload, variants=request.variants)
    options = _begun(request, call)
    console = ProgressConsole(is_aside=request.is_json)
    is_live = console.is_terminal and not console.is_dumb_terminal
    with View(console, is_live=is_live) as view:
        return run_plan(plan, options, view, space=space, heartbeat=call.heartbeat), plan


@contextmanager
def probing(request: Request, call: Call) -> Iterator[Prober]:
    """Keep ranks for the small sweeps of a search."""
    options = _begun(request, call)
    console = ProgressConsole(is_aside=request.is_json)
    with View(console, is_live=False) as view, HeldGroup(options) as held:
        yield Prober(workload=request.workload, options=options, view=view, heartbeat=call.heartbeat, held=held)


def _begun(request: Request, call: Call) -> Options:
    """The options with which runs start, or start again: another start continues in the same new folder."""
    options, heartbeat = request.options, call.heartbeat
    if options.fresh:
        options = replace(options, out=heartbeat.folder or str(results_location(options)), fresh=False)
        heartbeat.report(is_fresh=True)
    heartbeat.report(folder=str(results_location(options)), restarts=request.given["restarts"])
    return options
