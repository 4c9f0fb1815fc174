"""A process that runs a script up to where it reads its command line, and answers what its argparse parser takes.

    python -m dmls_ray.workloads.script.flag_reader SCRIPT WORD ...

The parser of the script answers questions then: one JSON list of words a line, as the arguments of a run. Each answer
is a line, too: its error in JSON, empty if the script takes the words. The script never goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
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
            given = _given(each, words)
            flags += [described for action in each._actions if (described := _describe(action, each, words, given))]
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


Given = list[tuple[argparse.Action, list[str]]]
"""The arguments that some words give, with the words of their values, in the order of the line."""


def _given(parser: argparse.ArgumentParser, words: list[str]) -> tuple[Given, list[str]]:
    """What the words give, however they spell it; and the words that the parser does not know.

    No type of the script is called: it may open a file, or return what cannot be compared.
    """
    given: Given = []
    required = [(action, action.required) for action in parser._actions]

    def take(action: argparse.Action, texts: list[str]) -> Any:
        if texts or action.option_strings:
            given.append((action, [*texts]))
        return texts[0] if action.nargs in (None, argparse.OPTIONAL) and texts else [*texts]

    for action, _ in required:
        action.required = False
    said = io.StringIO()
    parser._get_values = take  # type: ignore[method-assign, assignment]
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            _, unknown = parser.parse_known_args(words)
    except (SystemExit, Exception):  # noqa: BLE001 - what the parser refuses is said when the runs are checked
        return [], words
    finally:
        del parser._get_values
        for action, was in required:
            action.required = was
    return given, unknown


def _places_of(
    action: argparse.Action, parser: argparse.ArgumentParser, words: list[str], given: Given, unknown: list[str]
) -> list[int]:
    """Which words give a value to an argument, and nothing else."""
    places: list[int] = []
    for turn, (other, _) in enumerate(given):
        if other is not action:
            continue
        without = given[:turn] + given[turn + 1 :]
        for first, count in itertools.product(range(len(words)), (1, 2)):
            is_flag = words[first][:1] in parser.prefix_chars and first not in places
            if is_flag and _given(parser, words[:first] + words[first + count :]) == (without, unknown):
                places += range(first, first + count)
                break
    return places


def _describe(
    action: argparse.Action, parser: argparse.ArgumentParser, words: list[str], given: tuple[Given, list[str]]
) -> dict[str, Any] | None:
    """What is known of one argument; None for --help and --version."""
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
        "given": [texts for other, texts in given[0] if other is action],
        "places": _places_of(action, parser, words, *given),
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
