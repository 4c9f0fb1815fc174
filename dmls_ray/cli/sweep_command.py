"""`run`, the command of a sweep in its own process: flags, one line for bad input, table and answer at the end."""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dmls_ray.cli.best_of_search import BestOfSearch
from dmls_ray.cli.console import print_answer, print_table, say
from dmls_ray.cli.default_axes import DefaultAxes
from dmls_ray.cli.flags import OPTIONS, add_flags, choose_workload, merge_axes, parse_range
from dmls_ray.cli.parser import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Parser, parse
from dmls_ray.config.grid import Plan, Variant, configs_of
from dmls_ray.config.options import SEARCH_ONLY, Options
from dmls_ray.config.schema import Schema
from dmls_ray.execution.heartbeat import EXIT_LOST, Heartbeat
from dmls_ray.execution.planning import folder_name, plan_sweep, results_location, search_minimizes
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
from dmls_ray.util.text import check_utf8
from dmls_ray.util.uri import below
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload

if TYPE_CHECKING:
    from dmls_ray.analysis.results import Results

EXIT_TIMEOUT_S = 60.0
"""How long the end of the process may take once the sweep is over."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a sweep script says about its sweep: the arguments of `sweep_script.main`."""

    name: str
    axis: str | None
    defaults: Mapping[str, Any]
    question: str
    description: str
    variants: Sequence[Variant]
    how: Mapping[str, Any]
    workload: str | None
    train: str | None
    layout: str | None
    has_modules: bool


def run(script: Script, arguments: Sequence[str] | None, heartbeat: Heartbeat) -> NoReturn:
    """Run the sweep in this process, and exit.

    Args:
        script: what the script says.
        arguments: the command line without the program; None for that of sys.argv.
        heartbeat: reports to the supervisor.
    """
    stop_on_signals()
    try:
        _run_command(script, arguments, heartbeat)
    except ClusterLostError as error:
        heartbeat.report(ended=True, reason=str(error).partition(". ")[0], within_s=None)
        if not heartbeat.is_supervised:
            print(error, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # At a normal exit, Ray would wait for the head.
        os._exit(EXIT_LOST)
    finally:
        heartbeat.report(ended=True, within_s=EXIT_TIMEOUT_S)


def _run_command(script: Script, arguments: Sequence[str] | None, heartbeat: Heartbeat) -> NoReturn:
    if not script.has_modules:
        leave_out_folder(os.path.dirname(os.path.realpath(sys.argv[0])))
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = Parser(
        description=inspect.cleandoc(script.description or script.question),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    try:
        for word in words:
            check_utf8(word, "The word")
        default = registry.workload(script.workload or registry.DEFAULT)
        if script.train:
            default = registry.workload_of_function(script.train)
        chosen = choose_workload(parser, words, default)
        schema = chosen.schema()
        default_axes = DefaultAxes(axis=script.axis, axes=script.defaults, variants=script.variants)
        if chosen.name != default.name:
            script = replace(script, name=folder_name(chosen), layout=None)
            default_axes = default_axes.for_schema(schema)
        add_flags(parser, schema, default_axes.axes, script.how)
        given = vars(parse(parser, words))

        if given["mode"] == "bench":
            # Search options of the script do not apply.
            given |= {key: OPTIONS[key].default for key in SEARCH_ONLY if given[key] == script.how.get(key)}
        sys.exit(_run(chosen, schema, script, default_axes, given, heartbeat))
    except InputError as error:
        if heartbeat.is_restart and isinstance(error, ClusterError):
            raise ClusterLostError(str(error)) from error
        parser.error(str(error))
    except (NotKeptError, WorkerGroupError) as error:
        parser.exit(EXIT_FAILED, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        print("Stopped. The runs that had ended are kept; the same command runs the others.", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _run(
    chosen: Workload,
    schema: Schema,
    script: Script,
    default_axes: DefaultAxes,
    given: dict[str, Any],
    heartbeat: Heartbeat,
) -> int:
    dry_run, restarts = given.pop("dry_run"), given.pop("restarts")
    program = [sys.argv[0]]
    for name in ("train", "workload"):
        if (chosen_by := given.pop(name)) is not None:
            program += [f"--{name}", chosen_by]
    # A key of a function's dict that had a range has no flag but --set.
    ranged = [*given["range"], *given["log_range"]] if ":" in chosen.name else []
    set_fields = [field for field, *_ in (*given["set"], *ranged)]
    script_fields = {*default_axes.axes, *(field for variant in default_axes.variants for field in variant)}
    given |= {spec.name: [True] for spec in schema.specs.values() if given.get(spec.name) == []}
    for field, *texts in given.pop("set"):
        given[field] = [schema.check_name(field).parse(text) for text in texts]
    ranges = {field: parse_range(field, low, high) for field, low, high in given.pop("range")}
    ranges |= {field: parse_range(field, low, high, log=True) for field, low, high in given.pop("log_range")}

    options = Options(
        name=script.name,
        axis=script.axis,
        question=inspect.cleandoc(script.question).partition("\n\n")[0],
        layout=script.layout,
        **{key: given.pop(key) for key in OPTIONS},
    )
    asked = {field: values for field, values in {**given, **ranges}.items() if values is not None}
    if any(field in asked for variant in default_axes.variants for field in variant):
        default_axes = replace(default_axes, variants=({},), left_out=())
    plan, space = plan_sweep(merge_axes(default_axes.axes, asked), options, chosen, variants=default_axes.variants)
    if unfit := chosen.unfit_values(configs_of(plan.runs)):
        default_axes = default_axes.without(unfit, asked)
        plan, space = plan_sweep(merge_axes(default_axes.axes, asked), options, chosen, variants=default_axes.variants)

    console = ProgressConsole()
    if note := default_axes.note(asked):
        say(console, note)
    if dry_run:
        from dmls_ray.cli.dry_run import show_plan

        show_plan(plan, options, chosen, console)
        return EXIT_OK
    from dmls_ray.cli.progress import make_view

    heartbeat.report(restarts=restarts)
    started = _with_folder(options, heartbeat)
    try:
        with make_view(console) as view:
            results = run_plan(plan, started, view, space=space, heartbeat=heartbeat)
    except KeyboardInterrupt:
        print(_stopped(options, started), file=sys.stderr)
        return EXIT_INTERRUPTED
    best_of_search = functools.partial(
        BestOfSearch, program=program, schema=schema, options=options, script_fields=script_fields,
        set_fields=set_fields, repeats=plan.repeats,
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
    from dmls_ray.analysis.summary.search import best_first
    from dmls_ray.analysis.summary.sweep_summary import SweepQuestion, SweepSummary
    from dmls_ray.analysis.table.layouts import all_layouts
    from dmls_ray.analysis.table.shown import SPARE, shown_columns
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
        frame, notes, spare = layout.frame, [*layout.notes], SPARE
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
