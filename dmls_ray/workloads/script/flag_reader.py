"""A process that runs a program up to where it reads its command line, and answers what its parser takes.

    python -m dmls_ray.workloads.script.flag_reader OWN_FOLDER ROOT COPY PROGRAM WORD ...

It writes one line first, an object in JSON: the flags, and why they are not known where no parser was met. The parser
answers questions then: one JSON list of words a line, as the arguments of a run. Each answer is a line, too: its error
in JSON, empty if the parser takes the words. The program never goes on, and it is stopped before it trains, writes a
file or starts a process. With a copy of the repository ROOT, it starts there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from dmls_ray.util.template_copy import live_with
from dmls_ray.util.text import first_line
from dmls_ray.workloads.script.as_main import place_in_program, place_of, run_as_main
from dmls_ray.workloads.script.parsers import AbslParser, ArgparseParser, ClickParser, FlagParser
from dmls_ray.workloads.script.paths import enter
from dmls_ray.workloads.script.stops import (
    OWN_TIME_S,
    Imports,
    is_of_import,
    stop_after,
    stop_before_effects,
    stop_before_training,
)

_RANK_OF_ONE = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
}  # fmt: skip
"""What torchrun sets, for a program that reads it before its command line."""


class _StoppedError(BaseException):
    """Raised where a type of the program's parser would write a file, say."""


class Reading:
    """The reading of a program's flags.

    Args:
        words: its fixed arguments.
    """

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self._process = os.getpid()
        self._questions = os.fdopen(os.dup(0), encoding="utf-8")
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        # What the program prints before it reads its command line is nobody's answer, and nobody answers its questions.
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self._first: list[ArgparseParser] = []
        """Parsers that take their flags out before the main one; by the usual idiom, they have no --help."""
        self._is_answering = False
        self._is_over = False

    def install(self) -> Imports:
        """Let the parsers of the program lead here, as soon as their libraries are imported."""
        self._argparse(argparse)

        def click(module: ModuleType) -> None:
            self._replace(module.Command, "make_context", ClickParser)

        return Imports({
            "torch": lambda torch: stop_before_training(torch, self.stop),
            "tyro._backends._argparse": self._argparse,
            "click.core": click,
            "typer._click.core": click,
            "absl.flags": lambda absl: self._replace(absl.FlagValues, "__call__", AbslParser),
        })  # fmt: skip

    def _argparse(self, module: ModuleType) -> None:
        # Parsers that extend it replace one of these, and call the other.
        for name in ("parse_known_args", "_parse_known_args"):
            setattr(module.ArgumentParser, name, self._meeting(getattr(module.ArgumentParser, name)))

    def _meeting(self, parse: Callable[..., Any]) -> Callable[..., Any]:
        """A method of a parser of argparse that leads here."""

        def meet(parser: argparse.ArgumentParser, *given: Any, **named: Any) -> Any:
            frame = sys._getframe(1)
            is_first = any(parser is first.parser for first in self._first)
            if self._is_answering or is_first or is_of_import(frame):
                return parse(parser, *given, **named)
            met = ArgparseParser(parser, is_strict=_is_strict(frame, parser))
            if met.is_strict or parser.add_help:
                self._answer(met, self._first)
            self._first.append(met)
            return parse(parser, *given, **named)

        return meet

    def _replace(self, owner: Any, name: str, parser_of: Callable[[Any, Callable[..., Any]], FlagParser]) -> None:
        """Let a method that parses words, of an object of the owner, lead here."""
        parse = getattr(owner, name)

        def meet(met: Any, *given: Any, **named: Any) -> Any:
            if self._is_answering or is_of_import(sys._getframe(1)):
                return parse(met, *given, **named)
            return self._answer(parser_of(met, parse))

        setattr(owner, name, meet)

    def stop(self, reason: str) -> None:
        """End the program where it would do something else than read its command line."""
        if self._is_over:
            return
        if self._is_answering:
            if threading.current_thread() is threading.main_thread():
                raise _StoppedError
            return
        if os.getpid() != self._process:
            os._exit(0)
        main = sys._current_frames()[threading.main_thread().ident or 0]
        place = place_of(traceback.extract_stack(main))
        self.end(f"it {reason} ({place})" if place else f"it {reason}")

    def end(self, reason: str) -> NoReturn:
        """Answer without a main parser."""
        if self._first:
            self._answer(self._first[-1], self._first[:-1])
        print(json.dumps({"flags": [], "subcommands": {}, "reason": reason}), file=self._answers, flush=True)
        os._exit(0)

    def fail(self, said: str) -> NoReturn:
        """End as the program fails, without its exit handlers."""
        self._is_over = True
        sys.stdout.flush()
        print(said, file=sys.stderr, flush=True)
        os._exit(1)

    def start_again(self, variables: Mapping[str, str]) -> NoReturn:
        """Run the program from its beginning with these variables in its environment."""
        self._is_over = True
        os.environ |= variables
        os.dup2(self._questions.fileno(), 0)
        os.dup2(self._answers.fileno(), 1)
        os.execv(sys.executable, sys.orig_argv)

    def _answer(self, main: FlagParser, first: Sequence[ArgparseParser] = ()) -> NoReturn:
        """Answer what the main parser takes, and those that have taken their flags out before."""
        self._is_answering = True
        flags = [flag for parser in (*first, main) for flag in parser.flags(self.words)]
        answer = {"flags": flags, "subcommands": main.subcommands(self.words), "reason": ""}
        print(json.dumps(answer), file=self._answers, flush=True)
        for line in self._questions:
            left = json.loads(line)
            try:
                for parser in first:
                    left = parser.unknown(left)
                error = main.error_of(left)
            except _StoppedError:
                error = ""
            print(json.dumps(error), file=self._answers, flush=True)
        os._exit(0)


def _is_strict(frame: FrameType | None, parser: argparse.ArgumentParser) -> bool:
    """Whether a parser is called by its method that refuses unknown words."""
    while frame is not None and frame.f_locals.get("self") is parser:
        if frame.f_code.co_name in ("parse_args", "parse_intermixed_args"):
            return True
        frame = frame.f_back
    return False


def _described(error: BaseException) -> str:
    """An error in one line, with its place in the program: `ValueError: no data (train.py, line 3)`."""
    line = f"{type(error).__name__}: {first_line(error, empty='')}".rstrip(": ")
    place = place_in_program(error)
    return f"{line} ({place})" if place else line


def read_in_copy(life: int, *words: str) -> NoReturn:
    """Be the process that it would be by its command line.

    Args:
        life: as of `live_with`.
        words: those of the command line.
    """
    live_with(life)
    sys.argv[1:] = words
    sys.orig_argv = [sys.executable, "-m", __name__, *words]
    main()


def main() -> NoReturn:
    own_folder, root, copy, program, *words = sys.argv[1:]
    if copy:
        enter(Path(root), Path(copy))
    sys.dont_write_bytecode = True
    reading = Reading(words)
    imports = reading.install()
    stop_before_effects(reading.stop, own_folder)
    stop_after(OWN_TIME_S, reading.stop, imports)
    try:
        run_as_main(program, words)
    except SystemExit as end:
        if end.code:
            reading.fail(end.code if isinstance(end.code, str) else "")
    except BaseException as error:  # noqa: BLE001 - whatever a program raises
        if isinstance(error, KeyError) and error.args[0] in _RANK_OF_ONE and "RANK" not in os.environ:
            reading.start_again(_RANK_OF_ONE)
        reading.fail(f"{traceback.format_exc()}\n{_described(error)}")
    reading.end("it ends")


if __name__ == "__main__":
    main()
