"""The flags of a sweep, made from the fields of a configuration and from the options, and their help."""

from __future__ import annotations

import argparse
import copy
import functools
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dmls_ray.cli.console import EXIT_CODES, Parser
from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.options import FLAGS, RESERVED
from dmls_ray.config.runtime import Schema
from dmls_ray.config.value_texts import as_flag_value, seconds_of, share_of
from dmls_ray.util.errors import ConfigError

_DESCRIBED = (
    "world_size", "batch_per_rank", "epochs", "device", "steps", "repeats", "budget", "out", "format", "dry_run",
    "change_training", "flag",
)  # fmt: skip
"""Flags that --help describes."""
_OWN = "settings (of what is run)"
_MOST_OWN = 12
"""Flags of a script or a function that --help describes, at most."""
_WIDTH = 80
_VALUES = """A setting takes one or more values, separated by spaces; several values make an
axis. For a whole number, max is the largest value that fits into memory. An
option takes one value. If a flag is given twice, the last one counts; for
--set, --range, --log-range and --metric-regex, the last one for each name.
--env and --share accumulate."""
_METAVARS: Mapping[Callable[[str], float], str] = {seconds_of: "TIME", share_of: "SHARE"}
"""What reads a value -> the word for it: 90s, 20m or 2h; 5% or 0.05."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Shows a flag with several values as --lr FLOAT ..., where argparse repeats the word."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        text = super()._format_args(action, default_metavar)
        return re.sub(r"^(\S+) \[\1 \.\.\.\]$", r"\1 ...", text)


class SweepParser(Parser):
    """A parser whose --help fits a screen: it describes the usual flags and names the others.

    Args:
        prog: the words of the command line before the flags.
        description: what the command does.
    """

    def __init__(self, prog: str, description: str) -> None:
        usage, epilog = "%(prog)s [flags] [-- arguments of the script]", f"{_VALUES}\n\n{EXIT_CODES}"
        super().__init__(
            prog=prog, usage=usage, description=description, epilog=epilog, add_help=False, formatter_class=_Formatter
        )
        self.add_argument("-h", "--help", action="help", help="Describe the usual flags and name the others")
        self.add_argument("--help-all", action=_HelpOfAll, nargs=0, help="Describe all flags, in groups")

    def format_help(self) -> str:
        """What --help prints."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        formatter.start_section("usual flags")
        own = _group(self, _OWN)._group_actions[:_MOST_OWN]
        usual = [action for action in self._actions if action.dest in _DESCRIBED and action not in own]
        for action in (*own, *usual):
            # The first sentence of the help, and the default.
            text, bracket, default = (action.help or "").partition(" (default: ")
            short = copy.copy(action)
            short.help = re.split(r"[.;:] ", text)[0] + bracket + default
            formatter.add_argument(short)
        formatter.end_section()
        named = map(_names_of, self._action_groups)
        formatter.add_text("\n".join(["all flags, which --help-all describes:", *filter(None, named)]))
        formatter.add_text(self.epilog)
        return formatter.format_help()


class _HelpOfAll(argparse.Action):
    """Print what argparse prints by default, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(argparse.ArgumentParser.format_help(parser), end="")
        parser.exit()


def _names_of(group: Any) -> str:
    """The names of the flags of a group, in lines."""
    names = [action.option_strings[-1] for action in group._group_actions]
    if not names:
        return ""
    text = " ".join([f"{group.title}:", *names])
    return textwrap.fill(
        text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
    )


def add_workload_flags(parser: Parser, default: str) -> None:
    """Add the flags that choose a workload, and those that name fields.

    They are parsed first, because the other flags follow from the workload.

    Args:
        parser: receives the flags.
        default: name of the workload without a flag.
    """
    what = parser.add_argument_group("what is run")
    what.add_argument("--workload", metavar="NAME", help=f"What to run (default: {default})")
    what.add_argument(
        "--train", metavar="WHAT", help="Run a training function (module:function) or a script (train.py) instead"
    )
    help_text = "For a script: environment variables, each with one or more values"
    what.add_argument("--env", nargs="+", action="extend", default=[], metavar="NAME=VALUE,...", help=help_text)
    add = functools.partial(what.add_argument, action="append", default=[])
    help_text = "For a script: read a metric from its output, by the group of the pattern's last match"
    add("--metric-regex", nargs=2, metavar=("NAME", "PATTERN"), help=help_text)
    help_text = "For a script with --revision: a file or folder that runs read in place, instead of a copy"
    add("--share", metavar="PATH", help=help_text)
    add(
        "--set",
        nargs="+",
        metavar=("NAME", "VALUE"),
        help="Values of a key of a training function's config dict, or of a name in braces after --",
    )
    ends = ("NAME", "LOW", "HIGH")
    add("--range", nargs=3, metavar=ends, help="For a search: let a field have any number from LOW to HIGH")
    add("--log-range", nargs=3, metavar=ends, help="For a search: like --range, but uniform in the logarithm")


def add_flags(
    parser: Parser, schema: Schema, axes: Mapping[str, Any], options: Mapping[str, Any], formats: Sequence[str]
) -> None:
    """Add a flag for every field of a schema and every option.

    Args:
        parser: receives the flags.
        schema: the fields.
        axes: the script's values of fields.
        options: the script's values of options.
        formats: what --format takes.

    Raises:
        ConfigError: a field has the name of an option.
    """
    clash = sorted(schema.specs.keys() & RESERVED)
    if clash:
        raise ConfigError(
            f"{schema.title} has a field {' and '.join(clash)}, and every sweep has {', '.join(map(flag_of, clash))}: "
            f"rename the field, my_{clash[0]} say, or call sweep() from Python, which has no flags."
        )
    for spec in schema.specs.values():
        group = _group(parser, f"settings ({spec.setting.group})" if spec.setting.group else _OWN)
        # A switch without a value is on.
        others = [other for other, name in schema.aliases.items() if name == spec.name]
        add_flag(group, spec, axes.get(spec.name, spec.default), others, nargs="*" if spec.type == "bool" else "+")
    for spec in FLAGS.values():
        switch = {"nargs": "?", "const": "true"} if spec.type == "bool" else {}
        group = _group(parser, f"options ({spec.setting.group})")
        add_flag(group, spec, options.get(spec.name, spec.default), (), **switch)
    starts = "How often to restart after Ray or the process died, without a new run in between (default: 5)"
    limits = _group(parser, "options (limits)")
    limits.add_argument("--restarts", type=int, default=5, metavar="INT", help=starts)
    written = "Format of the result (default: text); json prints one object, and progress goes to standard error"
    display = _group(parser, "options (display)")
    display.add_argument("--format", choices=formats, default="text", help=written)
    display.add_argument("--dry-run", action="store_true", help="Print the plan with an estimate and start nothing")


def _group(parser: Parser, title: str) -> Any:
    """The group of flags with a title, made where it is missing."""
    known = (group for group in parser._action_groups if group.title == title)
    return next(known, None) or parser.add_argument_group(title)


def flag_of(name: str) -> str:
    """The flag of a field or an option."""
    return f"--{name.replace('_', '-')}"


def value_of_flag(spec: FieldSpec, text: str) -> Any:
    """The value of a flag's text.

    Raises:
        ConfigError: the text is no value of the field; the line names the flag, as it was typed.
    """
    try:
        return spec.parse(text)
    except ConfigError as error:
        raise ConfigError(str(error).replace(f"{spec.name}=", f"{flag_of(spec.name)} ", 1)) from error


def add_flag(group: Any, spec: FieldSpec, default: Any, aliases: Sequence[str], **how: Any) -> None:
    """Add a flag with values, by its name and others; its help shows the default, one value or several."""
    choices = spec.choices
    if spec.type == "bool":
        choices = (True, False)
    metavar = "{" + ",".join(map(as_flag_value, choices)) + "}" if choices else spec.type.upper()
    if spec.setting.reads:
        metavar = _METAVARS[spec.setting.reads]
    # A default is one value, and a script has several.
    values: Sequence[Any] = default if isinstance(default, list) else [default]
    unit = "s" if spec.setting.reads is seconds_of else ""
    shown = " ".join(as_flag_value(value) + unit for value in values if value is not None)
    help_text = re.sub(r"(?<!\.)\.$", "", spec.help)
    if shown:
        help_text += f" (default: {shown})"
    group.add_argument(
        flag_of(spec.name),
        *map(flag_of, aliases),
        dest=spec.name,
        metavar=metavar,
        help=help_text.replace("%", "%%"),
        default=argparse.SUPPRESS,
        **how,
    )
