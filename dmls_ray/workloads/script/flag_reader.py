"""A process that runs a script up to where it reads its command line, and answers what its argparse parser takes.

    python -m dmls_ray.workloads.script.flag_reader SCRIPT WORD ...

The parser of the script answers questions then: one JSON list of words a line, as the arguments of a run. Each answer
is a line, too: its error in JSON, empty if the script takes the words. The script never goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from types import FrameType
from typing import Any, NoReturn

from dmls_ray.util.importing import is_installed
from dmls_ray.workloads.script.as_main import run_as_main

_PLAIN = {None: "str", str: "str", int: "int", float: "float"}
"""Names of the types of flags; any other is a function of the script."""


def main() -> NoReturn:
    script, *words = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What the script prints before it reads its command line is nobody's answer.
    os.dup2(2, 1)
    parse = argparse.ArgumentParser.parse_known_args
    first: list[argparse.ArgumentParser] = []
    """Parsers that take their flags out before the main one; by the usual idiom, they have no --help."""

    def answer(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        if _is_of_library(sys._getframe(1)):
            return parse(parser, *args, **kwargs)
        is_strict = sys._getframe(1).f_code.co_name == "parse_args"
        if not is_strict and not parser.add_help:
            first.append(parser)
            return parse(parser, *args, **kwargs)
        argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign]
        flags = []
        for each in (*first, parser):
            places = {dest: _place_of(dest, each, words) for dest in _given(each, words)[0]}
            flags += [described for action in each._actions if (described := _describe(action, places))]
        print(json.dumps(flags), file=answers, flush=True)
        for line in sys.stdin:
            left = json.loads(line)
            for each in first:
                _, left = parse(each, left)
            print(json.dumps(_error_of(parser, left, is_strict=is_strict)), file=answers, flush=True)
        os._exit(0)

    argparse.ArgumentParser.parse_known_args = answer  # type: ignore[method-assign, assignment]
    with contextlib.suppress(SystemExit):
        run_as_main(script, words)
    os._exit(0)


def _is_of_library(frame: FrameType | None) -> bool:
    """Whether an installed package parses words while it is imported."""
    while frame is not None and frame.f_code.co_filename == argparse.__file__:
        frame = frame.f_back
    if frame is None or not is_installed(frame.f_code.co_filename):
        return False
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _given(parser: argparse.ArgumentParser, words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The values that the words give to arguments, however they spell them, without defaults; and the other words."""
    actions = [(action, action.default, action.required) for action in parser._actions]
    for action, *_ in actions:
        action.default, action.required = argparse.SUPPRESS, False
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            namespace, unknown = parser.parse_known_args(words)
    except (SystemExit, Exception):  # noqa: BLE001 - what the parser refuses is said when the runs are checked
        return {}, words
    finally:
        for action, default, required in actions:
            action.default, action.required = default, required
    return vars(namespace), unknown


def _place_of(dest: str, parser: argparse.ArgumentParser, words: list[str]) -> tuple[int, int] | None:
    """Which words give a value to an argument, and to no other: the first one, and how many; None where none do."""
    given, unknown = _given(parser, words)
    del given[dest]
    for first in range(len(words)):
        for count in (1, 2):
            if _given(parser, words[:first] + words[first + count :]) == (given, unknown):
                return first, count
    return None


def _describe(action: argparse.Action, places: dict[str, tuple[int, int] | None]) -> dict[str, Any] | None:
    """What is known of one argument; None for --help and --version.

    Args:
        action: the argument.
        places: the arguments that are given, with the words that do so, as `_place_of`.
    """
    if isinstance(action, argparse._HelpAction | argparse._VersionAction | argparse._SubParsersAction):
        return None
    has_no = isinstance(action, argparse.BooleanOptionalAction)
    options = [option for option in action.option_strings if not (has_no and option.startswith("--no-"))]
    longest = max(options, key=len, default="")
    is_switch = action.nargs == 0
    default = action.default if isinstance(action.default, str | int | float | bool) else None
    return {
        "option": longest,
        "dest": action.dest,
        "kind": "bool" if has_no else "switch" if is_switch else "value",
        "type": _PLAIN.get(action.type, "any") if action.choices is None else "str",  # type: ignore[arg-type]
        "choices": None if action.choices is None else [str(choice) for choice in action.choices],
        "several": action.nargs in ("*", "+") or (isinstance(action.nargs, int) and not is_switch),
        "default": default,
        "is_given": action.dest in places,
        "place": places.get(action.dest),
        "help": (action.help or "") if action.help != argparse.SUPPRESS else "",
    }


def _error_of(parser: argparse.ArgumentParser, words: list[str], *, is_strict: bool) -> str:
    """What the parser says against these words; empty if it takes them.

    Args:
        parser: the script's.
        words: the arguments of a run.
        is_strict: whether the script refuses words that the parser does not know.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            _, unknown = parser.parse_known_args(words)
    except SystemExit as end:
        return (said.getvalue().strip().splitlines() or [""])[-1] if end.code else ""
    except Exception as error:  # noqa: BLE001 - a type of the script's own may raise anything
        return f"{type(error).__name__}: {error}"
    return f"unrecognized arguments: {' '.join(unknown)}" if is_strict and unknown else ""


if __name__ == "__main__":
    main()
