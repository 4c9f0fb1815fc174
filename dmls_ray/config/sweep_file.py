"""A sweep as a file: `sweep.toml` says what is run and how.

    script = "train.py"
    args = ["--data", "/d"]
    repeats = 5

    [axes]
    batch_size = [16, 32]
    world_size = [1, 2]

A table [set] has the names that `--set` gives, [env] variables of a script's environment, [metric_regex] patterns by
the name of their metric, [[variants]] fields that are changed together. A range: {low = 1e-4, high = 0.1, log = true}.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from dmls_ray.config.axes import Range, range_of
from dmls_ray.config.fields import field_specs
from dmls_ray.config.options import Options
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.text import did_you_mean

SWEEP_FILE = "sweep.toml"

WHAT = ("script", "command", "train", "workload")
"""Keys of what is run."""
_TABLES = ("axes", "set", "env", "metric_regex")
_KEYS = (*WHAT, "args", "share", "variants", *_TABLES)
_OF_ONE_CALL = ("fresh", "address", "verbose", "dashboard")
"""Options that say nothing of what is measured."""


@dataclass(frozen=True, kw_only=True)
class What:
    """What is run, as flags or a sweep file say."""

    train: str | None = None
    """A script, or a training function as `module:function`."""
    workload: str | None = None
    """The name of a workload."""
    command: Sequence[str] = ()
    """The words of a command that is no Python."""
    arguments: Sequence[str] = ()
    """What a script has after `--`."""
    share: Sequence[str] = ()
    """Files and folders that runs of a script's revision read in place."""
    env: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Variables of a script's environment, with their values."""
    named: Sequence[str] = ()
    """Fields of a function that takes a dict, or names in braces."""
    metric_regex: Mapping[str, str] = field(default_factory=dict)
    """Name of a metric -> regular expression for what a script prints."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What is asked where no flag says otherwise."""

    name: str
    """Name of the results folder."""
    axis: str | None = None
    """Field that the sweep asks about; None for the first that varies."""
    axes: Mapping[str, Any] = field(default_factory=dict)
    """Values of fields for which no flag is given."""
    question: str = ""
    """Question that the sweep asks; shown by --help. Without one, the report asks about what varies."""
    description: str = ""
    """Text that --help shows instead."""
    variants: Sequence[Mapping[str, Any]] = ({},)
    """Fields that are changed together at each point of the grid. A flag for any of them asks for a grid instead."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of options for which no flag is given."""
    workload: str | None = ""
    """Workload whose fields the axes are; empty for the default one, None for the one that is run, whichever it is."""


def read_sweep_file(path: str) -> tuple[Preset, What]:
    """What a sweep file asks, with axes that are not checked, and what it runs.

    Raises:
        ConfigError: it cannot be read, has an unknown key, or does not say what is run; the message names the file.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); docs/sweeps.md shows such a file.") from error
    specs = field_specs(Options)
    for key in values:
        if key not in _KEYS and key not in specs:
            meant = did_you_mean(key, [*_KEYS, *specs])
            way_out = f"{meant}a setting of the training belongs in [axes], even with a single value"
            raise ConfigError(f"{path}: {key} is no key of a sweep; {way_out}.")
    for key in _TABLES:
        if not isinstance(values.get(key, {}), dict):
            raise ConfigError(f"{path}: {key} is no table; write [{key}] and its names below.")
    named = [key for key in WHAT if key in values]
    if len(named) != 1:
        raise ConfigError(f"{path}: it names {' and '.join(named) or 'nothing'} to run; give one of {', '.join(WHAT)}.")

    axes: dict[str, Any] = {}
    ranges: dict[str, Any] = {}
    for name, given in (*values.get("axes", {}).items(), *values.get("set", {}).items()):
        field_name = name.replace("-", "_")
        if isinstance(given, dict):
            ranges[field_name] = range_of(name, given.get("low"), given.get("high"), log=bool(given.get("log")))
        else:
            axes[field_name] = given
    # A search draws from the fields in this order: another one would give other points.
    axes |= sorted(ranges.items(), key=lambda item: item[1].log)
    env: dict[str, list[str]] = {}
    for name, given in values.get("env", {}).items():
        env[name] = [str(value) for value in (given if isinstance(given, list) else [given])]
    options: dict[str, Any] = {}
    for name in specs.keys() & values.keys():
        given = values[name]
        options[name] = specs[name].parse(given) if given == "none" else given
    what = What(
        train=values.get("script", values.get("train")),
        workload=values.get("workload"),
        command=[str(word) for word in values.get("command", ())],
        arguments=[str(word) for word in values.get("args", ())],
        share=[str(name) for name in values.get("share", ())],
        env=env,
        named=[*values.get("set", {})],
        metric_regex={name: str(pattern) for name, pattern in values.get("metric_regex", {}).items()},
    )
    preset = Preset(
        name="sweep",
        axes=axes,
        description=f"The sweep of {path}; flags go before its values.",
        variants=values.get("variants", [{}]),
        options=options,
        workload=None,
    )
    return preset, what


def sweep_file_text(described: Mapping[str, Any], options: Options, **further: Any) -> str:
    """The text of a sweep file that asks the same.

    Args:
        described: what is run and varied, as `Workload.describe_sweep` returns it.
        options: how it is run; those at their defaults are left out.
        further: options with other values.
    """
    values = {key: value for key, value in described.items() if key not in ("axes", "variants") and value}
    for name, spec in field_specs(Options).items():
        value = further.get(name, getattr(options, name))
        if value != spec.default and name not in _OF_ONE_CALL:
            values[name] = value
    if described.get("axes"):
        values["axes"] = described["axes"]
    if any(described.get("variants", ())):
        values["variants"] = described["variants"]
    return tomli_w.dumps(_written(values))


def _written(value: Any) -> Any:
    """A value as TOML has it, where `none` stands for no value."""
    if value is None:
        return "none"
    if isinstance(value, Range):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {name: _written(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    return value
