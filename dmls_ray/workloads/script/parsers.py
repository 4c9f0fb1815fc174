"""The parsers of programs: what flags they take, and what they say against words; nothing else of them is called."""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Described = Mapping[str, Any]
"""What is known of a flag, in plain values: the fields of `flags.ScriptFlag` and of its `FieldSpec`."""

_PLAIN = {
    None: "str", str: "str", int: "int", float: "float",
    "text": "str", "string": "str", "int": "int", "integer": "int", "float": "float",
}  # fmt: skip
"""Names of the types of flags; any other is a function of the program."""


def _plain_default(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) and value != argparse.SUPPRESS else None


def _answered(check: Callable[[], Any]) -> str:
    """The last line that a parser says when it refuses; empty if it does not."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            check()
    except SystemExit as end:
        last = (said.getvalue().strip().splitlines() or [""])[-1]
        return re.sub(r"^(\S.*?: )?error: ", "", last.strip()) if end.code else ""
    except Exception as error:  # noqa: BLE001 - a type of the program's own may raise anything
        message = getattr(error, "format_message", None)  # of click
        return str(message()) if message else f"{type(error).__name__}: {error}"
    return ""


class ArgparseParser:
    """A parser of argparse, of what extends it, or of a copy of it.

    Args:
        parser: the parser.
        is_strict: whether the program refuses words that the parser does not know.
    """

    def __init__(self, parser: argparse.ArgumentParser, *, is_strict: bool) -> None:
        self.parser, self.is_strict = parser, is_strict

    def flags(self, words: Sequence[str]) -> list[Described]:
        """What is known of each flag; `words` are the fixed arguments, which may choose a subcommand."""
        parser, start = self._chosen(words)
        given, unknown = _given(parser, words[start:])
        found: list[Described] = []
        for action in parser._actions:
            if not _is(action, "_HelpAction", "_VersionAction", "_SubParsersAction"):
                texts = [texts for other, texts in given if other is action]
                places = _places_of(action, parser, words[start:], given, unknown)
                found.append({**_describe(action), "given": texts, "places": [place + start for place in places]})
        return found

    def error_of(self, words: Sequence[str]) -> str:
        """What the parser says against these words; empty if it takes them."""
        parse = self.parser.parse_args if self.is_strict else self.parser.parse_known_args
        return _answered(lambda: parse([*words]))

    def subcommands(self, words: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """The options of each subcommand that may follow the words."""
        parser, _ = self._chosen(words)
        parsers: dict[str, argparse.ArgumentParser] = {}
        for action in parser._actions:
            if _is(action, "_SubParsersAction"):
                parsers |= dict(action.choices or {})
        return {name: [*parser._option_string_actions] for name, parser in parsers.items()}

    def _chosen(self, words: Sequence[str]) -> tuple[argparse.ArgumentParser, int]:
        """The parser of the subcommand that the words name, and the number of words up to it."""
        parser, start = self.parser, 0
        while True:
            try:
                _given(parser, words[start:])
            except _ChosenError as chosen:
                subparser, left = chosen.args
                if subparser is None:
                    return parser, start
                parser, start = subparser, len(words) - left
            else:
                return parser, start

    def unknown(self, words: Sequence[str]) -> list[str]:
        """The words that it leaves to another parser."""
        return self.parser.parse_known_args([*words])[1]


Arguments = list[tuple[argparse.Action, list[str]]]
"""The arguments that some words give, with the words of their values, in the order of the line."""


def _is(action: argparse.Action, *names: str) -> bool:
    """Whether an action is of one of these classes of argparse, or of a library's copy of it."""
    return not {base.__name__ for base in type(action).__mro__}.isdisjoint(names)


class _ChosenError(Exception):
    """Raised in place of the parser of a subcommand."""


def _given(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[Arguments, Sequence[str]]:
    """What the words give, however they spell it; and the words that the parser does not know.

    No type of the program is called: it may open a file, or return what cannot be compared.

    Raises:
        _ChosenError: with a subcommand, and the words that follow it.
    """
    given: Arguments = []
    required = [(action, action.required) for action in parser._actions]

    def take(action: argparse.Action, texts: list[str]) -> Any:
        if _is(action, "_SubParsersAction") and texts:
            raise _ChosenError(dict(action.choices or {}).get(texts[0]), len(texts) - 1)
        if texts or action.option_strings:
            given.append((action, [*texts]))
        return texts[0] if action.nargs in (None, argparse.OPTIONAL) and texts else [*texts]

    for action, _ in required:
        action.required = False
    said = io.StringIO()
    parser._get_values = take  # type: ignore[method-assign, assignment]
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            # Not the method of a subclass, which may do more.
            base = next(base for base in reversed(type(parser).__mro__) if hasattr(base, "parse_known_args"))
            _, unknown = base.parse_known_args(parser, [*words])
    except _ChosenError:
        raise
    except (SystemExit, Exception):  # noqa: BLE001 - what the parser refuses is said when the runs are checked
        return [], words
    finally:
        del parser._get_values
        for action, was in required:
            action.required = was
    return given, unknown


def _places_of(
    action: argparse.Action,
    parser: argparse.ArgumentParser,
    words: Sequence[str],
    given: Arguments,
    unknown: Sequence[str],
) -> list[int]:
    """Which words give a value to an argument, and nothing else."""
    places: list[int] = []
    for turn, (other, _) in enumerate(given):
        if other is not action:
            continue
        without = given[:turn] + given[turn + 1 :]
        for first, count in itertools.product(range(len(words)), (1, 2)):
            is_flag = words[first][:1] in parser.prefix_chars and first not in places
            if is_flag and _given(parser, [*words[:first], *words[first + count :]]) == (without, unknown):
                places += range(first, first + count)
                break
    return places


def _describe(action: argparse.Action) -> Described:
    """What is known of one argument of argparse."""
    options = [*action.option_strings]
    # Of one argument, --no-amp or --noamp beside --amp means false.
    off = [option for option in options if f"--{re.sub('^--no-?', '', option)}" in {*options} - {option}]
    on = [option for option in options if option not in off]
    longest = max(on, key=len, default="")
    is_switch = action.nargs == 0
    kind = _PLAIN.get(action.type, "any")  # type: ignore[arg-type]
    if action.type is None:  # as those of tyro, which reads the texts itself
        kind = {"INT": "int", "FLOAT": "float"}.get(str(action.metavar), "str")
    return {
        "options": [longest, *(option for option in on if option != longest)],
        "off": max(off, key=len, default=""),
        "dest": action.dest,
        "kind": "bool" if off else "switch" if is_switch else "value",
        "type": kind if action.choices is None else "str",
        "choices": None if action.choices is None else list(map(str, action.choices)),
        "several": action.nargs in ("*", "+") or (isinstance(action.nargs, int) and action.nargs > 1),
        "default": False if is_switch and not off else _plain_default(action.default),
        "help": (action.help or "") if action.help != argparse.SUPPRESS else "",
    }


def _given_by_name(flag: Described, words: Sequence[str]) -> Described:
    """A flag with the values that the words give it by one of its names: `--name value` or `--name=value`."""
    given: list[list[str]] = []
    places: list[int] = []
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == flag["off"] or (name in flag["options"] and flag["kind"] != "value" and not equals):
            given.append([])
            places.append(place)
        elif name in flag["options"] and equals:
            given.append([value])
            places.append(place)
        elif name in flag["options"] and place + 1 < len(words):
            given.append([words[place + 1]])
            places += [place, place + 1]
    return {**flag, "given": given, "places": places}


class ClickParser:
    """A command of click, or of typer, which has a copy of click.

    Args:
        command: the command.
        make_context: its method of this name, which parses words.
    """

    def __init__(self, command: Any, make_context: Callable[..., Any]) -> None:
        self.command, self._make_context = command, make_context

    def flags(self, words: Sequence[str]) -> list[Described]:
        *_, (command, left) = self._commands(words, resilient_parsing=True)
        start = len(words) - len(left)
        found: list[Described] = []
        for option in command.params:
            if option.param_type_name == "option" and option.expose_value:
                flag = _given_by_name(_describe_option(option), left)
                found.append({**flag, "places": [place + start for place in flag["places"]]})
        return found

    def error_of(self, words: Sequence[str]) -> str:
        return _answered(lambda: self._commands(words))

    def subcommands(self, words: Sequence[str]) -> Mapping[str, Sequence[str]]:
        *_, (command, _) = self._commands(words, resilient_parsing=True)
        commands = getattr(command, "commands", {})
        return {name: [option for each in command.params for option in each.opts] for name, command in commands.items()}

    def _commands(self, words: Sequence[str], **how: Any) -> list[tuple[Any, list[str]]]:
        """The command and the subcommands that the words name, each with the words that are left for it."""
        command, left, above = self.command, [*words], None
        found = [(command, left)]
        while True:
            above = self._make_context(command, command.name, [*left], parent=above, **how)
            if not hasattr(command, "get_command"):
                return found
            left = [*above._protected_args, *above.args]
            subcommand = command.get_command(above, left[0]) if left else None
            if subcommand is None:
                return found
            command, left = subcommand, left[1:]
            found.append((command, left))


def _describe_option(option: Any) -> Described:
    """What is known of one option of click."""
    options = sorted(option.opts, key=len, reverse=True)
    kind = getattr(option, "type", None)
    choices = getattr(kind, "choices", None)
    is_switch = option.is_flag or option.count
    # typer has annotations where click has types.
    annotation = getattr(getattr(option, "type_descriptor", None), "annotation", "any")
    return {
        "options": options,
        "off": max(option.secondary_opts, key=len, default=""),
        "dest": option.name,
        "kind": "bool" if option.secondary_opts else "switch" if is_switch else "value",
        "type": _PLAIN.get(getattr(kind, "name", annotation), "any") if choices is None else "str",
        "choices": None if choices is None else [str(getattr(choice, "value", choice)) for choice in choices],
        "several": option.nargs != 1,
        "default": _plain_default(getattr(option.default, "value", option.default)),
        "help": option.help or "",
    }


class AbslParser:
    """The flags of absl, which any module may define.

    Args:
        values: the object that holds them.
        parse: its method that takes a command line.
    """

    def __init__(self, values: Any, parse: Callable[..., Any]) -> None:
        self.values, self._parse = values, parse

    def flags(self, words: Sequence[str]) -> list[Described]:
        found: list[Described] = []
        for module, flags in self.values.flags_by_module_dict().items():
            if not module.startswith("absl."):
                found += [_given_by_name(_describe_absl(flag), words) for flag in flags]
        return found

    def error_of(self, words: Sequence[str]) -> str:
        return _answered(lambda: self._parse(copy.deepcopy(self.values), ["", *words]))

    def subcommands(self, words: Sequence[str]) -> Mapping[str, Sequence[str]]:
        return {}


def _describe_absl(flag: Any) -> Described:
    """What is known of one flag of absl."""
    choices = getattr(flag.parser, "enum_values", None)
    return {
        "options": [f"--{flag.name}"],
        "off": f"--no{flag.name}" if flag.boolean else "",
        "dest": flag.name,
        "kind": "bool" if flag.boolean else "value",
        "type": _PLAIN.get(flag.parser.flag_type(), "any") if choices is None else "str",
        "choices": choices,
        "several": False,
        "default": _plain_default(flag.default),
        "help": flag.help or "",
    }


FlagParser = ArgparseParser | ClickParser | AbslParser
