"""A sweep as a file: `sweep.toml` says what is run and how, as the flags of a command line do.

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

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmls_ray.config.fields import field_specs
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import Range
from dmls_ray.config.value_texts import as_flag_value, guess_value
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.text import did_you_mean

SWEEP_FILE = "sweep.toml"

_FLAGS = {"script": "--train", "train": "--train", "workload": "--workload"}
WHAT = tuple(_FLAGS)
"""Keys of what is run."""
_TABLES = ("axes", "set", "env", "metric_regex")
_KEYS = (*WHAT, "args", "share", "variants", *_TABLES)


@dataclass(frozen=True)
class SweepFile:
    """What a file asks, in the words of a command line."""

    words: Sequence[str]
    arguments: Sequence[str]
    """What a script has after `--`."""
    variants: Sequence[Mapping[str, Any]]
    script_options: Mapping[str, Any]
    """Options that have no flag: name, axis, question, layout."""


def read_sweep_file(path: str) -> SweepFile:
    """Read a sweep file.

    Raises:
        ConfigError: it cannot be read, has an unknown key, or does not say what is run; the message names the file.
    """
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); docs/sweeps.md shows such a file.") from error
    options = field_specs(Options)
    for key in values:
        if key not in _KEYS and key not in options:
            meant = did_you_mean(key, [*_KEYS, *options])
            way_out = f"{meant}a setting of the training belongs in [axes], even with a single value"
            raise ConfigError(f"{path}: {key} is no key of a sweep; {way_out}.")
    for key in _TABLES:
        if not isinstance(values.get(key, {}), dict):
            raise ConfigError(f"{path}: {key} is no table; write [{key}] and its names below.")
    named = [key for key in WHAT if key in values]
    if len(named) != 1:
        raise ConfigError(f"{path}: it names {' and '.join(named) or 'nothing'} to run; give one of {', '.join(WHAT)}.")

    words = words_of(values)
    script_options = {}
    for name in options.keys() & values.keys():
        if options[name].setting.group == "script":
            script_options[name] = values[name]
        else:
            words += [f"--{name.replace('_', '-')}", as_flag_value(values[name])]
    arguments = [str(word) for word in values.get("args", [])]
    return SweepFile(words, arguments, values.get("variants", [{}]), script_options)


def words_of(values: Mapping[str, Any]) -> list[str]:
    """The words of a command line that say what is run and varied.

    Args:
        values: these keys of a sweep file, of which others are left out.
    """
    words = [word for key in WHAT if key in values for word in (_FLAGS[key], str(values[key]))]
    for name in values.get("share", ()):
        words += ["--share", str(name)]
    for name, given in values.get("axes", {}).items():
        words += _words_of_axis(name, given)
    for name, given in values.get("set", {}).items():
        words += ["--set", name, *_texts(given)]
    for name, given in values.get("env", {}).items():
        values_of_variable = given if isinstance(given, list) else [given]
        words += ["--env", f"{name}={','.join(map(str, values_of_variable))}"]
    for name, pattern in values.get("metric_regex", {}).items():
        words += ["--metric-regex", name, str(pattern)]
    return words


def _words_of_axis(name: str, given: Any) -> list[str]:
    if isinstance(given, dict):
        flag = "--log-range" if given.get("log") else "--range"
        return [flag, name, str(given.get("low")), str(given.get("high"))]
    return [f"--{name.replace('_', '-')}", *_texts(given)]


def _texts(given: Any) -> list[str]:
    """The values of an axis as they are typed: JSON where the bare text would mean something else."""
    return [_text(value) for value in (given if isinstance(given, list) else [given])]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, str) and value != "none":
        looks_otherwise = value.startswith(("-", '"', "[")) or not isinstance(guess_value(value), str)
        return json.dumps(value) if looks_otherwise else value
    return as_flag_value(value)


def sweep_file_text(described: Mapping[str, Any], options: Options, **further: Any) -> str:
    """The text of a sweep file that asks the same.

    Args:
        described: what is run and varied, as `Workload.describe_sweep` returns it.
        options: how it is run; those at their defaults are left out.
        further: options with other values.
    """
    values = {key: value for key, value in described.items() if key not in (*_TABLES, "variants") and value}
    for name, spec in field_specs(Options).items():
        value = further.get(name, getattr(options, name))
        if value != spec.default and name not in _OF_ONE_CALL:
            values[name] = value
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    for table in _TABLES:
        if described.get(table):
            lines += ["", f"[{table}]"]
            lines += [f"{_key(name)} = {_toml(given)}" for name, given in described[table].items()]
    if any(described.get("variants", ())):
        for variant in described["variants"]:
            lines += ["", "[[variants]]"]
            lines += [f"{_key(name)} = {_toml(value)}" for name, value in variant.items()]
    return "\n".join([*lines, ""])


_OF_ONE_CALL = ("fresh", "address", "verbose", "dashboard")
"""Options that say nothing of what is measured."""


def _key(name: str) -> str:
    return name if name.replace("-", "_").isidentifier() and name.isascii() else json.dumps(name)


def _toml(value: Any) -> str:
    """A value of TOML, which has no null: `none`, as after a flag."""
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Range):
        return f"{{low = {value.low!r}, high = {value.high!r}, log = {_toml(value.log)}}}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False)
