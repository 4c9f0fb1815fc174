"""`Request`: what the command line of a sweep script asks, by flags made from the fields of a configuration."""

from __future__ import annotations

import argparse
import functools
import inspect
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dmls_ray.cli.console import Parser, parse
from dmls_ray.cli.sweep_flags import add_flags, add_workload_flags
from dmls_ray.cli.sweep_script import Preset
from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.grid import Variant
from dmls_ray.config.options import FLAGS, SEARCH_ONLY, Options, Until
from dmls_ray.config.runtime import MACHINE_FIELDS, Schema
from dmls_ray.config.search_space import Largest, Range
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.programs import is_program
from dmls_ray.util.text import check_utf8
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload

BATCH_FIELDS = {"batch_per_rank", "global_batch"}
"""One gives the other."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a command line asks, together with the preset of its script."""

    workload: Workload
    axes: Mapping[str, Any]
    """Axes of the script, with those of flags in their place."""
    variants: Sequence[Variant]
    left_out: Sequence[str]
    """Axes of the script that the workload does not take."""
    options: Options
    dry_run: bool
    restarts: int
    """How often the supervisor starts the sweep again without a new run in between."""
    given: Mapping[str, Any]
    """What was parsed, for flags that a command has beside those of all sweeps."""

    @property
    def is_json(self) -> bool:
        """Whether the result is to be one JSON object."""
        return bool(self.given["format"] == "json")


def parse_request(parser: Parser, preset: Preset, words: list[str]) -> Request:
    """Add the flags of a sweep script to a parser, and parse a command line.

    Raises:
        InputError: a word or a combination of words is wrong.
    """
    for word in words:
        check_utf8(word)
    arguments = list(preset.arguments)
    if "--" in words:
        end = words.index("--")
        words, arguments = words[:end], words[end + 1 :]
    typed, words = words, list(map(_with_hyphens, words))
    default = registry.workload(preset.workload or registry.DEFAULT)
    add_workload_flags(parser, default.name)
    first, _ = parser.parse_known_args([word for word in words if word not in ("-h", "--help", "--help-all")])
    workload = _chosen_workload(first, default, arguments)
    schema = workload.schema()
    if about_flags := workload.about_flags():
        parser.description = f"{parser.description}\n{about_flags}"
    defaults, variants = preset.axes, preset.variants
    left_out: list[str] = []
    name, layout = preset.name, preset.layout
    if workload.name != default.name:
        name, layout = preset.name if preset.given else workload.folder_name, None
        defaults, variants, left_out = _axes_of_another_workload(preset, schema)
    preset_options = preset.options or {}
    add_flags(parser, schema, defaults, preset_options, preset.formats)
    given = vars(parse(parser, words, about=functools.partial(_about_unknown, workload, typed)))
    axes = read_axes(given, schema) | _variables(first)
    if any(axes.keys() & variant.keys() for variant in variants):
        variants, left_out = [{}], []
    axis = preset.axis
    if axis is None and not any(variants):
        # What is typed first is what is asked about.
        axis = next((name for name, values in axes.items() if isinstance(values, list) and len(values) > 1), None)

    if given["restarts"] < 0:
        raise ConfigError(f"--restarts {given['restarts']} is out of range; give 0 or more.")
    asked_options = {name: FLAGS[name].parse(text) for name, text in given.items() if name in FLAGS}
    options = {**preset_options, **asked_options}
    if not options.get("search"):
        # Search options of the script do not apply.
        options = {key: value for key, value in options.items() if key in asked_options or key not in SEARCH_ONLY}
    if options.get("search") or options.get("repeats", "auto") != "auto":
        # Nor does what the script says of repeats until all is decided.
        until = {item.name for item in fields(Until)}
        options = {key: value for key, value in options.items() if key in asked_options or key not in until}
    question = inspect.cleandoc(preset.question).partition("\n\n")[0]
    return Request(
        workload=workload,
        axes=merge_axes(defaults, axes),
        variants=variants,
        left_out=[field for field in left_out if field not in axes],
        options=Options(name=name, axis=axis, question=question, layout=layout, **options),
        dry_run=given["dry_run"],
        restarts=given["restarts"],
        given=given,
    )


def _with_hyphens(word: str) -> str:
    """A flag as it is written here; many scripts write theirs with underscores."""
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value if flag.startswith("--") else word


def _about_unknown(workload: Workload, typed: Sequence[str], unknown: str, meant: str) -> str:
    """What a workload says of a word that is no flag; empty for the line of every sweep.

    Args:
        workload: the workload.
        typed: the words of the command line, as they were typed.
        unknown: the word, with hyphens.
        meant: what may have been meant, as a question.
    """
    place = [_with_hyphens(word) for word in typed].index(unknown)
    flag, equals, value = typed[place].partition("=")
    following = itertools.takewhile(lambda word: not word.startswith("--"), typed[place + 1 :])
    return workload.about_unknown_flag(flag, [value] if equals else [*following], meant)


def _variables(first: argparse.Namespace) -> dict[str, list[str]]:
    """The variables of the environment that --env names, with their values.

    Raises:
        ConfigError: one has no value.
    """
    variables: dict[str, list[str]] = {}
    for text in first.env:
        name, _, values = text.partition("=")
        variables.setdefault(name, []).extend(values.split(","))
    for name, values in variables.items():
        if "" in values:
            raise ConfigError(f"--env {name} has no value; give one or several: --env {name}=1,2.")
    return variables


def _patterns(first: argparse.Namespace) -> dict[str, str]:
    """The regular expressions of --metric-regex by name.

    Raises:
        ConfigError: one is none.
    """
    for name, pattern in first.metric_regex:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"--metric-regex {name} {pattern} is no regular expression ({error}).") from error
    return dict(first.metric_regex)


def _chosen_workload(first: argparse.Namespace, default: Workload, arguments: Sequence[str]) -> Workload:
    """The workload that flags choose.

    Args:
        first: the flags.
        default: the workload without any.
        arguments: words after `--`, which are those of a script.

    Raises:
        ConfigError: there is no such workload, or the flags contradict each other.
    """
    if first.train is not None and first.workload:
        raise ConfigError(f"--workload {first.workload} and --train {first.train} are both given; give one of them.")
    if first.train is not None and is_program(first.train):
        variables = {name: values[0] for name, values in _variables(first).items()}
        patterns = _patterns(first)
        given = {"variables": variables, "patterns": patterns, "shared": first.share}
        return registry.workload_of_script(first.train, arguments, **given)
    if first.share:
        raise ConfigError(f"--share {first.share[0]} is for a script with --revision; leave it out.")
    if first.env:
        raise ConfigError(f"--env {first.env[0]} is for a script; set the variable before the command instead.")
    if first.metric_regex:
        raise ConfigError(f"--metric-regex {first.metric_regex[0][0]} is for what a script prints; leave it out.")
    if first.train is not None:
        return registry.workload_of_function(first.train, _named_fields(first))
    if first.set:
        raise ConfigError(f"--set {first.set[0][0]} is for a training function; give it with --train module:function.")
    return registry.workload(first.workload or default.name)


def _named_fields(first: argparse.Namespace) -> list[str]:
    """The fields that --set, --range and --log-range name."""
    return [name for name, *_ in (*first.set, *first.range, *first.log_range)]


def _axes_of_another_workload(preset: Preset, schema: Schema) -> tuple[dict[str, Any], Sequence[Variant], list[str]]:
    """The axes of a script with several values, and its variants, as far as another workload has the fields.

    Returns:
        The axes, the variants, and the fields that are left out.

    Raises:
        ConfigError: the workload lacks the field that the script asks about.
    """
    if preset.axis and preset.axis not in schema.specs:
        raise ConfigError(
            f"{preset.axis}, which this script asks about, is no field of {schema.title}; use sweeps/grid.py, which "
            "asks about any, or a workload that has it."
        )
    axes = {}
    for name, given in preset.axes.items():
        if isinstance(given, Range) or (isinstance(given, list | tuple) and len(given) > 1):
            axes[name] = given
    names = dict.fromkeys([*axes, *itertools.chain(*preset.variants)])
    left_out = [name for name in names if name not in schema.specs]
    variants = [variant for variant in preset.variants if variant.keys().isdisjoint(left_out)]
    return {name: axes[name] for name in axes if name in schema.specs}, variants or [{}], left_out


def read_axes(given: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The values of fields that a parsed command line gives.

    Raises:
        ConfigError: there is no such field, or a text is none of its values.
    """
    texts = {name: given[name] or ["true"] for name in given if name in schema.specs}
    texts |= {name: values for name, *values in given["set"]}
    axes: dict[str, Any] = {}
    for name, values in texts.items():
        spec = schema.check_name(name)
        axes[name] = [_parsed(spec, value) for value in values]
    for name, low, high in given["range"]:
        axes[name] = _read_range("--range", name, low, high)
    for name, low, high in given["log_range"]:
        axes[name] = _read_range("--log-range", name, low, high)
    return axes


def _parsed(spec: FieldSpec, text: str) -> Any:
    """The value that a text means; `max` of a whole number is the largest that fits into memory."""
    largest = Largest.parse(text) if spec.type == "int" or text.startswith("max:") else None
    return spec.parse(text) if largest is None else largest


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
    elif given and given <= {*MACHINE_FIELDS} and defaults.get("world_size") == [1]:
        # A script that asks about one rank asks about one on each machine, or about one machine.
        replaced.append("world_size")
    for name in replaced:
        axes.pop(name, None)
    return axes | {**asked}


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
        raise ConfigError(f"the range of {name} from {low} to {high} needs two numbers; give two.") from error
