"""The command line of every sweep script: flags made from `TrialConfig`, one line for bad input, the table and the
answer at the end.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from dmls_ray.cli.console import SPARE, Console, print_table, say
from dmls_ray.cli.parser import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Parser, parse
from dmls_ray.config.fields import FieldSpec, field_specs
from dmls_ray.config.grid import Plan, Variant
from dmls_ray.config.options import SCRIPT_FIELDS, SEARCH_ONLY, Options
from dmls_ray.config.runtime import MACHINE_FIELDS
from dmls_ray.config.schema import Schema
from dmls_ray.config.search_space import Range
from dmls_ray.execution.location import results_location
from dmls_ray.execution.pending import finished_run_ids
from dmls_ray.execution.planning import plan_sweep
from dmls_ray.execution.preflight import check_names
from dmls_ray.execution.run import run_plan
from dmls_ray.util.errors import ConfigError, HeadLostError, InputError, WorkerGroupError
from dmls_ray.util.uri import below
from dmls_ray.workloads.classification.config import trial_schema
from dmls_ray.workloads.registry import workload_of_function
from dmls_ray.workloads.user_function.schema import folder_name


def main(
    *,
    name: str,
    question: str,
    axis: str | None,
    defaults: Mapping[str, Any],
    variants: Sequence[Variant] = ({},),
    how: Mapping[str, Any] | None = None,
    train: str | None = None,
    layout: str | None = None,
    arguments: Sequence[str] | None = None,
) -> NoReturn:
    """Run a sweep from the command line, and exit.

    The exit code is 0 when every run has an answer (ok, oom, diverged, skipped), 1 when one ended in error, killed
    or timeout, or could not be uploaded to the URI where it is to be, 2 for bad input, and 130 after Ctrl-C.

    Args:
        name: names the results folder.
        question: what the sweep asks; shown by --help.
        axis: the field the sweep asks about; None for the first that varies.
        defaults: values of fields where no flag is given.
        how: values of options where no flag is given.
        train: the function that is swept where no flag names another, `module:function`; None for the built-in trial.
        layout: the reports' table that is shown in place of the sweep's, by its name in `analysis.layouts`.
        variants: what is changed one thing at a time; a flag for any of these fields asks for a grid in their place.
        arguments: the command line, without the program; sys.argv's by default.
    """
    # A job that is stopped (SIGTERM) keeps what it has, as one that is interrupted does.
    signal.signal(signal.SIGTERM, _interrupt)
    words = sys.argv[1:] if arguments is None else list(arguments)
    given: dict[str, Any] = {}
    parser = Parser(
        description=inspect.cleandoc(question),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    try:
        own = _own_function(parser, words, train)
        schema = (
            workload_of_function(own.train, [name for name, *_ in own.set]).schema() if own.train else trial_schema()
        )
        if own.train != train:
            name, variants, layout = folder_name(own.train), ({},), None
            defaults = _known_defaults(schema, defaults, axis)
        _add_flags(parser, schema, defaults, how or {})
        given = vars(parse(parser, words))
        if given["mode"] == "bench":
            # What the script would search with is nothing that was asked for.
            given |= {key: _OPTIONS[key].default for key in SEARCH_ONLY if given[key] == (how or {}).get(key)}
        asked = inspect.cleandoc(question).partition("\n\n")[0]
        own_options = {"name": name, "axis": axis, "question": asked, "layout": layout}
        sys.exit(_run(own_options, dict(defaults), variants, dict(given), schema))
    except InputError as error:
        parser.error(str(error))
    except HeadLostError as error:
        _leave(error)
    except WorkerGroupError as error:
        parser.exit(EXIT_FAILED, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        again = "the same command"
        if given.get("fresh"):
            again += ", with --out on that folder in place of --fresh,"
        print(f"Stopped. The runs that had ended are kept; {again} runs the others.", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _run(
    own_options: Mapping[str, Any],
    defaults: dict[str, Any],
    variants: Sequence[Variant],
    given: dict[str, Any],
    schema: Schema,
) -> int:
    dry_run = given.pop("dry_run")
    del given["train"]
    given |= {spec.name: [True] for spec in schema.specs.values() if given.get(spec.name) == []}
    for own, *texts in given.pop("set"):
        given[own] = [schema.check_name(own).parse(text) for text in texts]
    ranges = {field: _range(field, low, high) for field, low, high in given.pop("range")}
    ranges |= {field: _range(field, low, high, log=True) for field, low, high in given.pop("log_range")}
    options = Options(**own_options, **{key: given.pop(key) for key in _OPTIONS})
    axes = _axes(defaults, {**given, **ranges})
    if any(given.get(field) is not None for variant in variants for field in variant):
        variants = ({},)
    plan, space = plan_sweep(axes, options, schema, variants=variants)
    console = Console()
    if dry_run:
        return _show_plan(plan, options, console)
    from dmls_ray.cli.progress import make_view

    with make_view(console) as view:
        results = run_plan(plan, options, view, space=space, at_worst=_leave)
    return _show_results(results, plan, options, console)


def _leave(error: HeadLostError) -> NoReturn:
    """End this process as it is: what Ray does at its end would wait for the head."""
    print(error, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(EXIT_FAILED)


def _own_function(parser: Parser, words: list[str], train: str | None) -> argparse.Namespace:
    """The flags that say which function is swept, and so which others there are."""
    parser.add_argument("--train", metavar="MODULE:FUNCTION", default=train, help="A training function of your own")
    parser.add_argument(
        "--set", action="append", nargs="+", default=[], metavar=("NAME", "VALUE"),
        help="With --train, where its configuration is a dict: values of one of its fields",
    )  # fmt: skip
    first = Parser(add_help=False, allow_abbrev=False, prog=parser.prog, parents=[parser], conflict_handler="resolve")
    own, _ = first.parse_known_args([word for word in words if word not in ("-h", "--help")])
    for name, *values in own.set:
        if not values:
            raise ConfigError(f"--set {name} names no value; give one or several: --set {name} 1 2.")
        if not own.train:
            raise ConfigError(f"--set {name} is for a function of your own; give it with --train module:function.")
    return own


def _is_axis(value: Any) -> bool:
    return isinstance(value, Range) or (isinstance(value, list | tuple) and len(value) > 1)


def _range(name: str, low: str, high: str, *, log: bool = False) -> Range:
    try:
        return Range(float(low), float(high), log=log)
    except ValueError as error:
        raise ConfigError(f"a range of {name} from {low} to {high} is not of numbers; give two numbers.") from error
    except ConfigError as error:
        raise ConfigError(f"{'--log-range' if log else '--range'} {name}: {error}") from error


def _known_defaults(schema: Schema, defaults: Mapping[str, Any], axis: str | None) -> dict[str, Any]:
    """The axes that the script has by default, as far as a function of the user's own has such fields."""
    clash = schema.specs.keys() & {*_OPTIONS, "dry_run", "set", "help"}
    if clash:
        raise ConfigError(
            f"{', '.join(sorted(clash))} of {schema.title} is also an option of every sweep; give that field another "
            "name."
        )
    if axis is not None and axis not in schema.specs:
        raise ConfigError(
            f"{axis}, which this script asks about, is no field of {schema.title}; use sweeps/grid.py, which asks "
            "about any, or a function that has it."
        )
    return {name: value for name, value in defaults.items() if name in schema.specs and _is_axis(value)}


def _axes(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    flags = {key: values for key, values in given.items() if values is not None}
    if "batch_per_rank" in flags and "global_batch" in flags:
        raise ConfigError(
            "--batch-per-rank and --global-batch are both given; give one: the other follows from batch_per_rank x "
            "world_size x accum_steps."
        )
    # A batch that is asked for takes the place of either default.
    dropped = {"batch_per_rank", "global_batch"} if flags.keys() & {"batch_per_rank", "global_batch"} else set()
    # So do machines and the ranks on each, of which world_size follows; and a world_size, where a script has both.
    asked = [name for name in ("world_size", *MACHINE_FIELDS) if name in flags]
    if len(asked) == 2:
        dropped |= {"world_size", *MACHINE_FIELDS}
    elif asked == ["world_size"] and {*MACHINE_FIELDS} <= defaults.keys():
        dropped.add("ranks_per_machine")
    return {key: values for key, values in defaults.items() if key not in dropped} | flags


def _show_results(results: Any, plan: Plan, options: Options, console: Console) -> int:
    from dmls_ray.analysis.export.files import DERIVED_FILES, derived_files_are_current
    from dmls_ray.analysis.summary.sweep_summary import SweepQuestion, SweepSummary
    from dmls_ray.analysis.table.layouts import LAYOUTS

    searched = options.mode == "search"
    question = SweepQuestion(
        text=options.question, varied=plan.varied, axis=options.axis, changed=plan.changed, minimizes=options.minimizes,
        metric=options.metric if searched else None,
    )  # fmt: skip
    reading = SweepSummary(results, question)
    elsewhere = f"dmls-ray table {shlex.quote(results.where)} --format csv"
    frame, notes = reading.table.frame(), reading.table.notes
    if options.layout:
        layout = LAYOUTS[options.layout](results)
        frame, notes = layout.frame, [*layout.notes]
    print_table(frame, console, spare=SPARE, elsewhere=elsewhere)
    for note in notes:
        say(console, note, style="dim")
    say(console, f"\n{reading.sentence}\n")
    if derived_files_are_current(results.folder):
        beside = ", ".join(DERIVED_FILES[1:])
        report = below(results.where, "report.html")
        say(console, f"Report: {report}; beside it {beside}, runs.jsonl and sweep.json")
    is_there = results.mirror is None or not results.mirror.is_kept
    return EXIT_OK if is_there and all(record.outcome.is_answer() for record in results.records) else EXIT_FAILED


def _show_plan(plan: Plan, options: Options, console: Console) -> int:
    from dmls_ray.cluster.connect import cluster_at
    from dmls_ray.cluster.resources import local_resources
    from dmls_ray.execution.estimate import describe_estimate
    from dmls_ray.execution.jobs import JobFactory
    from dmls_ray.storage.remote_store import records_at

    folder = results_location(options)
    if options.uses_searcher:
        say(console, f"{options.searcher} proposes {options.samples} runs, one after the other, into {folder}.")
        return EXIT_OK
    records = records_at(folder)
    here = local_resources()
    joined = cluster_at(options.address)
    plan = plan.skip_infeasible(JobFactory(here, options, Path()).unavailable)
    if joined is None:
        plan = plan.skip_infeasible(here.judge(plan, oversubscribe=options.oversubscribe))
    ended = finished_run_ids(records, options)
    pending = plan.pending(ended)
    check_names(pending)
    say(console, f"{len(plan.runs)} runs in {plan.repeats} blocks, order seed {plan.order_seed}, into {folder}:")
    for run in plan.runs:
        state = "done" if run.run_id in ended else f"skipped: {run.skip}" if run.skip else "to run"
        say(console, f"{run.order + 1:4}  seed {run.seed:<7} {run.label(plan.varied)}  {state}")
    say(console, describe_estimate(plan, pending, records))
    if joined is not None:
        say(console, f"The cluster ({joined}) was not asked: a run that does not fit there will be skipped.")
    return EXIT_OK


# --- flags ------------------------------------------------------------------------------------------------------

_OPTIONS = {name: spec for name, spec in field_specs(Options).items() if name not in SCRIPT_FIELDS}
"""What a flag says of how to run a sweep."""


def _add_flags(parser: Parser, schema: Schema, defaults: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    # argparse takes -1 for a value and -1e-3 for a flag.
    parser._negative_number_matcher = re.compile(r"^-\d+$|^-\d*\.?\d+([eE][-+]?\d+)?$")
    fields = parser.add_argument_group("what to train (each takes one value or several; several make an axis)")
    for spec in schema.specs.values():
        _add_field(fields, spec, defaults)
    how = parser.add_argument_group("how to run it")
    for spec in _OPTIONS.values():
        _add_option(how, replace(spec, default=options.get(spec.name, spec.default)))
    for flag, kind in (("--range", "numbers"), ("--log-range", "numbers, as likely by their logarithm")):
        how.add_argument(
            flag, action="append", nargs=3, default=[], metavar=("NAME", "LOW", "HIGH"),
            help=f"Search mode: let a field have any of these {kind}",
        )  # fmt: skip
    how.add_argument("--dry-run", action="store_true", help="Print the plan with an estimate and start nothing")


def _add_field(group: Any, spec: FieldSpec, defaults: Mapping[str, Any]) -> None:
    default = defaults.get(spec.name, spec.default)
    values = default if isinstance(default, list | tuple) else [default]
    told = "" if default is None else f" (default: {' '.join(map(_told, values))})"
    choices = spec.choices or (("true", "false") if spec.type == "bool" else ())
    metavar = "{" + ",".join(map(str, choices)) + "}" if choices else spec.type.upper()
    group.add_argument(
        f"--{spec.name.replace('_', '-')}",
        # A switch that stands alone is on.
        nargs="*" if spec.type == "bool" else "+",
        type=_argument(spec),
        metavar=metavar,
        help=(spec.help.rstrip(".") + told).replace("%", "%%"),
    )


def _add_option(group: Any, spec: FieldSpec) -> None:
    flag = f"--{spec.name.replace('_', '-')}"
    if spec.type == "bool":
        group.add_argument(flag, action="store_true", help=spec.help.rstrip("."))
        return
    told = "" if spec.default is None else f" (default: {_told(spec.default)})"
    metavar = "{" + ",".join(map(str, spec.choices)) + "}" if spec.choices else spec.type.upper()
    told_help = (spec.help.rstrip(".") + told).replace("%", "%%")
    group.add_argument(flag, type=_argument(spec), default=spec.default, metavar=metavar, help=told_help)


def _argument(spec: FieldSpec) -> Any:
    def parse(text: str) -> Any:
        try:
            return spec.parse(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def _told(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
