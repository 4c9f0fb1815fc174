"""The flags of a sweep script, from the fields of a configuration and of `Options`, and the axes that they give."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from dmls_ray.cli.parser import Parser
from dmls_ray.config.fields import FieldSpec, as_flag_value, field_specs
from dmls_ray.config.options import SCRIPT_FIELDS, Options
from dmls_ray.config.runtime import MACHINE_FIELDS
from dmls_ray.config.schema import Schema
from dmls_ray.config.search_space import Range
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import workload, workload_of_function

OPTIONS = {name: spec for name, spec in field_specs(Options).items() if name not in SCRIPT_FIELDS}
"""The options that are flags."""

RESERVED = frozenset({*OPTIONS, "workload", "train", "set", "range", "log_range", "restarts", "dry_run", "help"})
"""Names of flags that are no fields: no field may have one of them."""


def choose_workload(parser: Parser, words: list[str], default: Workload) -> Workload:
    """Add the flags that choose a workload, and return the workload that they choose.

    They are parsed first, because the other flags follow from the workload.

    Raises:
        ConfigError: there is no such workload, or the flags contradict each other.
    """
    parser.add_argument("--workload", metavar="NAME", help=f"What to run (default: {default.name})")
    parser.add_argument("--train", metavar="MODULE:FUNCTION", help="Run a training function instead of a workload")
    parser.add_argument(
        "--set",
        action="append",
        nargs="+",
        default=[],
        metavar=("NAME", "VALUE"),
        help="With --train, if its configuration is a dict: values of one of its fields",
    )
    first = Parser(add_help=False, allow_abbrev=False, prog=parser.prog, parents=[parser], conflict_handler="resolve")
    _add_ranges(first)
    given, _ = first.parse_known_args([word for word in words if word not in ("-h", "--help")])

    for name, *values in given.set:
        if not values:
            raise ConfigError(f"--set {name} names no value; give one or several: --set {name} 1 2.")
    names = [name for name, *_ in (*given.set, *given.range, *given.log_range)]
    if given.train is not None and given.workload:
        raise ConfigError(f"--workload {given.workload} and --train {given.train} are both given; give one of them.")
    if given.train is not None:
        return workload_of_function(given.train, names)
    chosen = workload(given.workload) if given.workload else default
    is_function = chosen is default and ":" in chosen.name
    if given.set and not is_function:
        raise ConfigError(f"--set {given.set[0][0]} is for a training function; give it with --train module:function.")
    return workload_of_function(chosen.name, names) if is_function else chosen


def add_flags(parser: Parser, schema: Schema, defaults: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Add a flag for every field of a schema and every option.

    Args:
        parser: receives the flags.
        schema: the fields.
        defaults: the script's values of fields.
        options: the script's values of options.

    Raises:
        ConfigError: a field has the name of an option.
    """
    clash = sorted(schema.specs.keys() & RESERVED)
    if clash:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in clash)
        raise ConfigError(
            f"{schema.title} has a field {' and '.join(clash)}, and every sweep has {flags}: rename the field, "
            f"my_{clash[0]} say, or call sweep() from Python, which has no flags."
        )

    fields = parser.add_argument_group("what to train (each takes one value or several; several make an axis)")
    for spec in schema.specs.values():
        # A switch without a value is on.
        # A default is one value, and a script has several.
        shown = defaults.get(spec.name, [] if spec.default is None else [spec.default])
        _add_flag(fields, spec, shown, nargs="*" if spec.type == "bool" else "+")
    for name in schema.refused.keys() - RESERVED:
        fields.add_argument(_flag(name), nargs="*", help=argparse.SUPPRESS)

    how = parser.add_argument_group("how to run it")
    for spec in OPTIONS.values():
        default = options.get(spec.name, spec.default)
        if spec.type == "bool":
            how.add_argument(_flag(spec.name), action="store_true", help=_help(spec))
        else:
            _add_flag(how, spec, [] if default is None else [default], default=default)
    _add_ranges(how)
    how.add_argument(
        "--restarts",
        type=_count,
        default=5,
        metavar="INT",
        help="How often a sweep starts again after Ray or its process died, without a new run in between (default: 5)",
    )
    how.add_argument("--dry-run", action="store_true", help="Print the plan with an estimate and start nothing")


def merge_axes(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The axes of a script with the values of flags; a flag that was not given is None.

    Raises:
        ConfigError: both batch_per_rank and global_batch are given.
    """
    flags = {key: values for key, values in given.items() if values is not None}
    if "batch_per_rank" in flags and "global_batch" in flags:
        raise ConfigError(
            "--batch-per-rank and --global-batch are both given; give one: the other follows from batch_per_rank x "
            "world_size x accum_steps."
        )

    # A batch that was asked for replaces either default.
    replaced = {"batch_per_rank", "global_batch"} if flags.keys() & {"batch_per_rank", "global_batch"} else set()

    # world_size, machines and ranks_per_machine: two of them give the third.
    asked = [name for name in ("world_size", *MACHINE_FIELDS) if name in flags]
    if len(asked) == 2:
        replaced |= {"world_size", *MACHINE_FIELDS}
    elif asked == ["world_size"] and {*MACHINE_FIELDS} <= defaults.keys():
        replaced.add("ranks_per_machine")

    return {key: values for key, values in defaults.items() if key not in replaced} | flags


def parse_range(name: str, low: str, high: str, *, log: bool = False) -> Range:
    """The range of `--range NAME LOW HIGH`, or of `--log-range`.

    Raises:
        ConfigError: the ends are no numbers, or the range is empty.
    """
    try:
        return Range(float(low), float(high), log=log)
    except ValueError as error:
        raise ConfigError(f"a range of {name} from {low} to {high} is not of numbers; give two numbers.") from error
    except ConfigError as error:
        raise ConfigError(f"{'--log-range' if log else '--range'} {name}: {error}") from error


def _add_ranges(group: Any) -> None:
    for flag, kind in (("--range", "numbers"), ("--log-range", "numbers, uniform in their logarithm")):
        group.add_argument(
            flag,
            action="append",
            nargs=3,
            default=[],
            metavar=("NAME", "LOW", "HIGH"),
            help=f"Search mode: let a field have any of these {kind}",
        )


def _add_flag(group: Any, spec: FieldSpec, shown: Any, **how: Any) -> None:
    """Add a flag with a value; its help shows the default, one value or several."""
    values = shown if isinstance(shown, list) else [shown]
    choices = spec.choices or (("true", "false") if spec.type == "bool" else ())
    group.add_argument(
        _flag(spec.name),
        type=_argument(spec),
        metavar="{" + ",".join(map(as_flag_value, choices)) + "}" if choices else spec.type.upper(),
        help=_help(spec, " ".join(map(as_flag_value, values))),
        **how,
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _help(spec: FieldSpec, default: str = "") -> str:
    text = spec.help.rstrip(".") + (f" (default: {default})" if default else "")
    return text.replace("%", "%%")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"restarts={text} is no number of restarts; give 0, which is never, or more.")
    return int(text)


def _argument(spec: FieldSpec) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return spec.parse(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse
