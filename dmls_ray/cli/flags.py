"""The flags of a sweep script, from the fields of a configuration and of `Options`, and the values that they give."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.options import FLAGS
from dmls_ray.config.runtime import MACHINE_FIELDS, Schema
from dmls_ray.config.search_space import Range
from dmls_ray.config.value_texts import as_flag_value
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.text import did_you_mean, escape_control_chars

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # argparse takes -1 for a value and -1e-3 for a flag.
        self._negative_number_matcher = re.compile(r"^-\d+$|^-\d*\.?\d+([eE][-+]?\d+)?$")

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with code 2."""
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {escape_control_chars(' '.join(message.split()))}\n")

    def refuse(self, unknown: str) -> NoReturn:
        """Print one line about an unknown flag or argument, with what may have been meant, and exit with code 2."""
        if not unknown.startswith("-"):
            self.error(f"{unknown} is one argument too many; --help shows what is expected.")
        meant = did_you_mean(unknown.partition("=")[0], [*self._option_string_actions])
        self.error(f"{unknown} is no flag; {meant}--help lists them all.")


def add_folder(parser: Parser, *, stale: bool = False) -> None:
    """Add the argument that names a results folder, and the flag that includes runs with other code or data."""
    parser.add_argument("folder", metavar="DIR", help="Results folder of a sweep, results/batch_size, say, or its URI")
    if stale:
        parser.add_argument("--stale", action="store_true", help=FLAGS["stale"].help.rstrip("."))


def parse(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parse a command line; an unknown flag or argument ends the program with one line.

    The line is that of the command, if the parser has commands and sets `parser` to the one that was chosen.
    """
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen = getattr(given, "parser", None)
        (chosen if isinstance(chosen, Parser) else parser).refuse(unknown[0])
    return given


BATCH_FIELDS = {"batch_per_rank", "global_batch"}
"""One gives the other."""

RESERVED = frozenset({*FLAGS, "workload", "train", "set", "range", "log_range", "restarts", "dry_run", "help"})
"""Names of flags that are no fields: no field may have one of them."""


def add_workload_flags(parser: Parser, default: str) -> None:
    """Add the flags that choose a workload, and those that name fields.

    They are parsed first, because the other flags follow from the workload.

    Args:
        parser: receives the flags.
        default: name of the workload without a flag.
    """
    parser.add_argument("--workload", metavar="NAME", help=f"What to run (default: {default})")
    parser.add_argument("--train", metavar="MODULE:FUNCTION", help="Run a training function instead of a workload")
    parser.add_argument(
        "--set",
        action="append",
        nargs="+",
        default=[],
        metavar=("NAME", "VALUE"),
        help="With --train, if its configuration is a dict: values of one of its fields",
    )
    for flag, kind in (("--range", "numbers"), ("--log-range", "numbers, uniform in their logarithm")):
        parser.add_argument(
            flag,
            action="append",
            nargs=3,
            default=[],
            metavar=("NAME", "LOW", "HIGH"),
            help=f"Search mode: let a field have any of these {kind}",
        )


def add_flags(parser: Parser, schema: Schema, axes: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Add a flag for every field of a schema and every option.

    Args:
        parser: receives the flags.
        schema: the fields.
        axes: the script's values of fields.
        options: the script's values of options.

    Raises:
        ConfigError: a field has the name of an option.
    """
    clash = sorted(schema.specs.keys() & RESERVED)
    if clash:
        raise ConfigError(
            f"{schema.title} has a field {' and '.join(clash)}, and every sweep has {', '.join(map(flag_of, clash))}: "
            f"rename the field, my_{clash[0]} say, or call sweep() from Python, which has no flags."
        )
    fields = parser.add_argument_group("what to train (each takes one value or several; several make an axis)")
    for spec in schema.specs.values():
        # A switch without a value is on.
        _add_flag(fields, spec, axes.get(spec.name, spec.default), nargs="*" if spec.type == "bool" else "+")
    for name in schema.refused.keys() - RESERVED:
        fields.add_argument(flag_of(name), nargs="*", help=argparse.SUPPRESS, default=argparse.SUPPRESS)

    how = parser.add_argument_group("how to run it")
    for spec in FLAGS.values():
        switch = {"nargs": "?", "const": "true"} if spec.type == "bool" else {}
        _add_flag(how, spec, options.get(spec.name, spec.default), **switch)
    how.add_argument(
        "--restarts",
        type=int,
        default=5,
        metavar="INT",
        help="How often a sweep starts again after Ray or its process died, without a new run in between (default: 5)",
    )
    how.add_argument("--dry-run", action="store_true", help="Print the plan with an estimate and start nothing")


def read_axes(given: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The values of fields that a parsed command line gives.

    Raises:
        ConfigError: there is no such field, or a text is none of its values.
    """
    texts = {name: given[name] or ["true"] for name in given if name in schema.specs or name in schema.refused}
    texts |= {name: values for name, *values in given["set"]}
    axes: dict[str, Any] = {}
    for name, values in texts.items():
        spec = schema.check_name(name)
        axes[name] = [spec.parse(value) for value in values]
    for name, low, high in given["range"]:
        axes[name] = _read_range("--range", name, low, high)
    for name, low, high in given["log_range"]:
        axes[name] = _read_range("--log-range", name, low, high)
    return axes


def read_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of options that a parsed command line gives.

    Raises:
        ConfigError: a text is no value of its option.
    """
    return {name: FLAGS[name].parse(text) for name, text in given.items() if name in FLAGS}


def merge_axes(defaults: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The axes of a script with those of flags in their place."""
    axes = dict(defaults)
    # A batch that was asked for replaces either default.
    replaced = [*BATCH_FIELDS] if asked.keys() & BATCH_FIELDS else []
    # world_size, machines and ranks_per_machine: two of them give the third.
    given = {"world_size", *MACHINE_FIELDS} & asked.keys()
    if len(given) == 2:
        replaced += ["world_size", *MACHINE_FIELDS]
    elif given == {"world_size"} and {*MACHINE_FIELDS} <= defaults.keys():
        replaced.append("ranks_per_machine")
    for name in replaced:
        axes.pop(name, None)
    return axes | {**asked}


def flag_of(name: str) -> str:
    """The flag of a field or an option."""
    return f"--{name.replace('_', '-')}"


def _read_range(flag: str, name: str, low: str, high: str) -> Range:
    """
    Raises:
        ConfigError: the ends are no numbers, or the range is empty.
    """
    try:
        return Range(float(low), float(high), log=flag == "--log-range")
    except ConfigError as error:
        raise ConfigError(f"{flag} {name}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"a range of {name} from {low} to {high} is not of numbers; give two numbers.") from error


def _add_flag(group: Any, spec: FieldSpec, default: Any, **how: Any) -> None:
    """Add a flag with values; its help shows the default, one value or several."""
    choices = spec.choices
    if spec.type == "bool":
        choices = (True, False)
    metavar = "{" + ",".join(map(as_flag_value, choices)) + "}" if choices else spec.type.upper()
    help_text = spec.help.rstrip(".") + _shown_default(default)
    group.add_argument(
        flag_of(spec.name), metavar=metavar, help=help_text.replace("%", "%%"), default=argparse.SUPPRESS, **how
    )


def _shown_default(default: Any) -> str:
    # A default is one value, and a script has several.
    values: Sequence[Any] = default if isinstance(default, list) else [default]
    shown = " ".join(as_flag_value(value) for value in values if value is not None)
    return f" (default: {shown})" if shown else ""
