"""Run a script up to its end, and say how it ended: also where it would end or replace its process."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn
from unittest.mock import patch

from dmls_ray.workloads.script.as_main import run_as_main
from dmls_ray.workloads.script.last_step import LastStep

end_process = os._exit
"""While a script runs, os._exit is another function."""


@dataclass(frozen=True)
class Ended:
    """How a script ended."""

    code: int = 0
    """Its exit code."""
    error: BaseException | None = None
    replaced: str = ""
    """The line on a script that would have replaced its process by another program."""


class _EndedError(BaseException):
    """Raised in place of what would end or replace this process, before it has reported anything."""

    def __init__(self, ended: Ended) -> None:
        self.ended = ended


def run_to_end(program: str, words: Sequence[str], report: Callable[[Ended], NoReturn]) -> Ended:
    """Run a script with the words of its command line, and say how it ended.

    A fork that the script has made, and that goes on up to here, ends.

    Args:
        program: as of `run_as_main`.
        words: its arguments.
        report: reports how it ended, and ends this process: where another thread than the main one ends it.
    """
    process = os.getpid()
    ended = _run(program, words, process, report)
    if os.getpid() != process:  # its result is none of the script
        flush()
        end_process(ended.code)
    return ended


def flush() -> None:
    """Write what the script has printed; it may have closed its streams, or put others in their place."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, AttributeError, OSError):
            stream.flush()


def _run(program: str, words: Sequence[str], process: int, report: Callable[[Ended], NoReturn]) -> Ended:
    """Run it in any process: where the script forks, both go on from here."""
    execv = os.execv
    variables = dict(os.environ)

    def end(ended: Ended) -> NoReturn:
        if threading.current_thread() is not threading.main_thread():
            report(ended)
        raise _EndedError(ended)

    def exit_process(status: int) -> NoReturn:
        # Processes that the script has started end as they would.
        if os.getpid() != process:
            end_process(status)
        end(Ended(status))

    def instead_of(replace: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
        def replace_process(path: Any, argv: Sequence[Any], env: Mapping[Any, Any] = os.environ) -> NoReturn:
            # A program that is not there is an error: execvp tries one folder after the other.
            if os.getpid() != process or not os.path.isfile(path) or not os.stat(path).st_mode & 0o111:
                replace(path, argv, *([] if replace is execv else [env]))
            end(Ended(replaced=_reason(replace.__name__, argv, variables, env)))

        return replace_process

    try:
        with patch.multiple(os, _exit=exit_process, execv=instead_of(execv), execve=instead_of(os.execve)):
            run_as_main(program, words)
    except LastStep:
        return Ended()
    except _EndedError as end_of_script:
        return end_of_script.ended
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        # A program that prints an exception and then exits, as Hydra does, fails with that exception.
        handled = error.__cause__ or error.__context__
        return Ended(code, handled if code and not isinstance(error.code, str) else None)
    except BaseException as error:  # noqa: BLE001 - whatever a script raises ends its run only
        traceback.print_exc()
        return Ended(1, error)
    return Ended()


def _reason(function: str, argv: Sequence[Any], before: Mapping[str, str], env: Mapping[Any, Any]) -> str:
    """The line on a script that replaces its process.

    Args:
        function: of os, that does it.
        argv: the command line of the program that it starts.
        before: the environment in which the script began.
        env: that of the program.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and (module := frame.f_globals.get("__name__")) in (__name__, "os"):
        if module == "os":
            function = frame.f_code.co_name  # which the script has called
        frame = frame.f_back
    line = f"the script replaced its process by os.{function}, which is not measured"
    given = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
    changed = [f"{name}={value}" for name, value in given.items() if before.get(name) != value]
    if changed:
        return f"{line}; set {shlex.join(sorted(changed))} by --env"
    program, *arguments = [os.fsdecode(word) for word in argv]
    started = shlex.join([os.path.basename(program), *arguments])
    return f"{line}; let it train in the process in which it starts, or sweep what it starts: {started}"
