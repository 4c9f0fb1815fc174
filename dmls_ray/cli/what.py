"""What a command line says is run, and the workload that follows."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dmls_ray.cli.call import Call
from dmls_ray.config.sweep_file import What
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.programs import folder_name_of, is_program
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload


def answers_help(call: Call, about: str | None) -> bool:
    """Print what a command does where its words name nothing to run; returns whether they do not."""
    if call.words and call.words[0] not in ("-h", "--help"):
        return False
    print(inspect.cleandoc(about or ""))
    return True


def take_what(call: Call) -> str:
    """What a command line names, one word or `-m` and a module, which become a part of the name of the call.

    Raises:
        ConfigError: -m names no module.
    """
    if call.words[0] != "-m":
        return call.take(1)[0]
    if len(call.words) < 2 or call.words[1].startswith("-"):
        raise ConfigError("-m names no module; give one: -m package.train.")
    return " ".join(call.take(2))


def folder_of(what: str) -> str:
    """The name of the results folder of a script, a function or a workload."""
    return folder_name_of(what) if is_program(what) else re.sub(r"\W+", "-", what).strip("-")


def with_flags(what: What, flags: argparse.Namespace) -> What:
    """What is run with what flags say in its place, or beside it.

    Raises:
        ConfigError: a variable has no value, or a pattern is no regular expression.
    """
    variables: dict[str, list[str]] = {}
    for text in flags.env:
        name, _, values = text.partition("=")
        variables.setdefault(name, []).extend(values.split(","))
    for name, values in variables.items():
        if "" in values:
            raise ConfigError(f"--env {name} has no value; give one or several: --env {name}=1,2.")
    patterns = {**what.metric_regex, **dict(flags.metric_regex)}
    for name, pattern in patterns.items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"--metric-regex {name} {pattern} is no regular expression ({error}).") from error
    return replace(
        what,
        train=what.train if flags.train is None else flags.train,
        workload=flags.workload or what.workload,
        share=[*what.share, *flags.share],
        env={**what.env, **variables},
        named=[*what.named, *(name for name, *_ in flags.set)],
        metric_regex=patterns,
    )


def workload_of_what(what: What, default: str, ranged: Sequence[str]) -> Workload:
    """The workload that is run.

    Args:
        what: what is run.
        default: name of the workload where nothing names any.
        ranged: fields with a range, which a function that takes a dict may have, too.

    Raises:
        ConfigError: there is no such workload, or what is said contradicts itself.
    """
    if what.train is not None and what.workload:
        raise ConfigError(f"--workload {what.workload} and --train {what.train} are both given; give one of them.")
    how: dict[str, Any] = {
        "variables": {name: values[0] for name, values in what.env.items()},
        "patterns": what.metric_regex,
        "shared": what.share,
    }
    if what.command:
        if what.train is not None or what.workload:
            raise ConfigError(f"--train and --workload take the place of {what.command[0]}; leave them out.")
        return registry.workload_of_command(what.command, **how)
    if what.train is not None and is_program(what.train):
        return registry.workload_of_script(what.train, what.arguments, **how)
    if what.share:
        raise ConfigError(f"--share {what.share[0]} is for a script with --revision; leave it out.")
    for name, values in what.env.items():
        text = f"{name}={','.join(values)}"
        raise ConfigError(f"--env {text} is for a script; set the variable before the command instead.")
    for name in what.metric_regex:
        raise ConfigError(f"--metric-regex {name} is for what a script prints; leave it out.")
    if what.train is not None:
        return registry.workload_of_function(what.train, [*what.named, *ranged])
    if what.named:
        raise ConfigError(f"--set {what.named[0]} is for a training function; give it with --train module:function.")
    return registry.workload(what.workload or default)
