"""`Request`: what the command line of a sweep script asks, by flags made from the fields of a configuration."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from dmls_ray.cli.console import Parser, parse
from dmls_ray.cli.sweep_flags import add_flags, add_workload_flags, value_of_flag
from dmls_ray.cli.what import with_flags, workload_of_what
from dmls_ray.config.axes import Axes, Largest, Range, checked_axes, distinct_values, range_of, read_written
from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.grid import Variant
from dmls_ray.config.options import FLAGS, SEARCH_ONLY, Options, Until
from dmls_ray.config.runtime import MACHINE_FIELDS, Schema
from dmls_ray.config.sweep_file import Preset, What
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.text import check_utf8
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload

BATCH_FIELDS = {"batch_per_rank", "global_batch"}
"""One gives the other."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a command line asks, together with the preset of its script."""

    workload: Workload
    axes: Axes
    """Axes of the preset, with those of flags in their place."""
    variants: Sequence[Variant]
    left_out: Sequence[str]
    """Axes of the preset that the workload does not take."""
    options: Options
    given: Mapping[str, Any]
    """What was parsed, for flags that are no options."""

    @property
    def dry_run(self) -> bool:
        """Whether the plan is to be printed, and nothing started."""
        return bool(self.given["dry_run"])

    @property
    def is_json(self) -> bool:
        """Whether the result is to be one JSON object."""
        return bool(self.given["format"] == "json")


def parse_request(
    parser: Parser,
    preset: Preset,
    words: list[str],
    what: What | None = None,
    *,
    formats: Sequence[str] = ("text", "json"),
    is_paired: bool = False,
) -> Request:
    """Add the flags of a sweep to a parser, and parse a command line.

    Args:
        parser: receives the flags.
        preset: what is asked where no flag says otherwise.
        words: the command line.
        what: what is run unless a flag says otherwise.
        formats: what --format takes.
        is_paired: whether values of several flags that stand at one place go together, so that some may stand twice.

    Raises:
        InputError: a word or a combination of words is wrong.
    """
    for word in words:
        check_utf8(word)
    what = what or What()
    if "--" in words:
        end = words.index("--")
        words, what = words[:end], replace(what, arguments=words[end + 1 :])
    typed, words = words, [_with_hyphens(word) for word in words]
    default = preset.workload or registry.DEFAULT
    add_workload_flags(parser, default)
    first, _ = parser.parse_known_args([word for word in words if word not in ("-h", "--help", "--help-all")])
    what = with_flags(what, first)
    ranged = [name for name, *_ in (*first.range, *first.log_range)]
    if preset.workload is None:
        ranged += [name for name, given in preset.axes.items() if isinstance(given, Range)]
    workload = workload_of_what(what, default, ranged)
    schema = workload.schema()
    if about_flags := workload.about_flags():
        parser.description = f"{parser.description}\n{about_flags}"

    preset_options = dict(preset.options)
    left_out: list[str] = []
    defaults, variants = preset.axes, preset.variants
    name = preset.name
    if preset.workload is not None and workload.name != default:
        defaults, variants, left_out = _axes_of_another_workload(preset, schema)
        preset_options.pop("layout", None)
        name = workload.folder_name
    defaults = workload.name_objects(defaults)
    add_flags(parser, schema, defaults, preset_options, formats)
    given = vars(parse(parser, words, about=functools.partial(_about_unknown, workload, typed)))
    asked = read_flags(given, schema, is_paired=is_paired)
    variables = {name: distinct_values(name, values) for name, values in what.env.items()}
    kept = kept_defaults(defaults, asked.keys() | variables.keys())
    axes = checked_axes(kept, schema, read_written) | asked | variables
    if any(asked.keys() & variant.keys() for variant in variants):
        variants, left_out = [{}], []
    axis = preset.axis
    if axis is None and not any(variants):
        # What is typed first is what is asked about.
        varied = [field for field, values in asked.items() if isinstance(values, tuple) and len(values) > 1]
        axis = varied[0] if varied else None

    if given["restarts"] < 0:
        raise ConfigError(f"--restarts {given['restarts']} is out of range; give 0 or more.")
    options = _options_of(
        preset_options, {field: value_of_flag(FLAGS[field], given[field]) for field in given if field in FLAGS}
    )
    question = inspect.cleandoc(preset.question).partition("\n\n")[0]
    return Request(
        workload=workload,
        axes=axes,
        variants=variants,
        left_out=[field for field in left_out if field not in axes],
        options=Options(**{"name": name, "axis": axis, "question": question, **options}),
        given=given,
    )


def _options_of(ours: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a preset with those of flags in their place, without those that do not apply then."""
    options = {**ours, **asked}
    dropped: set[str] = set()
    if not options.get("search") and ours.get("search"):
        dropped |= {*SEARCH_ONLY}
    if asked.get("search") or asked.get("repeats", "auto") != "auto":
        # What is said of repeats until all is decided.
        dropped |= {item.name for item in fields(Until)}
    return {name: value for name, value in options.items() if name in asked or name not in dropped}


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


def read_flags(
    given: Mapping[str, Any], schema: Schema, *, is_paired: bool = False
) -> dict[str, tuple[Any, ...] | Range]:
    """The axes that a parsed command line gives.

    Raises:
        ConfigError: there is no such field, or a text is none of its values.
    """
    texts = {name: given[name] or ["true"] for name in given if name in schema.specs}
    texts |= {name: values for name, *values in given["set"]}
    axes: dict[str, tuple[Any, ...] | Range] = {}
    for name, values in texts.items():
        spec = schema.check_name(name)
        read = value_of_flag if name in schema.specs else FieldSpec.parse
        read_values = [Largest.parse(text, spec) or read(spec, text) for text in values]
        axes[name] = tuple(read_values) if is_paired else distinct_values(name, read_values)
    for flag in ("range", "log_range"):
        for name, low, high in given[flag]:
            axes[name] = range_of(name, low, high, log=flag == "log_range").checked(schema.check_name(name))
    return axes


def kept_defaults(defaults: Mapping[str, Any], asked: Collection[str]) -> dict[str, Any]:
    """The axes of a preset that flags leave as they are.

    Args:
        defaults: the axes of the preset.
        asked: fields that flags give.
    """
    replaced = {*asked}
    # A batch that was asked for replaces either default.
    if BATCH_FIELDS & replaced:
        replaced |= BATCH_FIELDS
    # world_size, machines and ranks_per_machine: two of them give the third.
    sizes = {"world_size", *MACHINE_FIELDS} & replaced
    if len(sizes) == 2:
        replaced |= {"world_size", *MACHINE_FIELDS}
    elif sizes == {"world_size"} and {*MACHINE_FIELDS} <= defaults.keys():
        replaced.add("ranks_per_machine")
    elif sizes and sizes <= {*MACHINE_FIELDS} and defaults.get("world_size") == [1]:
        # A script that asks about one rank asks about one on each machine, or about one machine.
        replaced.add("world_size")
    return {name: given for name, given in defaults.items() if name not in replaced}
