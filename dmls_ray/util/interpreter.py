"""This process: the signals that ask it to stop, the processes below it, its output streams and their encoding, its
garbage collector, and the command line of another one that imports the same.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

REPEAT_S = 2.0
"""A signal so soon after another is the same request: a terminal, a job's manager and the supervisor each send one."""


def stop_on_signals() -> None:
    """Raise KeyboardInterrupt at a signal that asks to stop."""
    last = -math.inf

    def stop(number: int, _: object) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > REPEAT_S:
            raise KeyboardInterrupt

    handle_interrupts(stop)


def handle_interrupts(handler: Callable[[int, Any], object]) -> None:
    """Set the handler of the signals that ask to stop, but for those that are ignored (nohup)."""
    for number in _INTERRUPTS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


DEATH_SIGNAL, CHILD_SUBREAPER = 1, 36
"""Options of `prctl`: the signal that this process gets when its parent ends; whether processes below this one whose
parent has ended become its children."""


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl(2); elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def kill_descendants(timeout_s: float = math.inf) -> None:
    """Kill all processes below this one, and wait for their end; those that are waiting for a device take longer."""
    import psutil  # here, since a sweep is to start soon

    until = time.monotonic() + timeout_s
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < until:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=0.02)


def exit_now(code: int) -> NoReturn:
    """End this process after its exit handlers.

    Threads that go on, and modules, end without notice: to take PyTorch's apart takes half a second.
    """
    with suppress(BaseException):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay signals that ask to stop until the block is over. Outside the main thread they cannot arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    # Blocked signals would go to one of Ray's threads, and Python would still handle them in this one.
    before = {number: signal.signal(number, lambda given, _: arrived.append(given)) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        signal.raise_signal(arrived[0])


def discard_output(stream: TextIO) -> None:
    """Discard what is still written to a stream whose reader has left (`| head`); Python would end in a traceback."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def write_out_unprintable(stream: TextIO) -> None:
    """Write characters that the encoding of a stream lacks as escapes, as standard error does: `\\xfc`."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
        stream.reconfigure(errors="backslashreplace")


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the search for reference cycles within the block, or within the decorated function.

    Use it where many long-lived objects without cycles are made: the collector would scan all of them again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def command_of_call(module: str, function: str, arguments: Sequence[Any]) -> list[str]:
    """The command line of a new interpreter that has the module search path of this one, and calls a function.

    Args:
        module: of the function.
        function: its name.
        arguments: whose `repr` is Python.
    """
    program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {function}; {function}(*{arguments!r})"
    return [sys.executable, "-c", program]


def use_utf8() -> None:
    """Start the command of this process again in Python's UTF-8 mode where it has begun with another encoding.

    With LC_ALL=C and PYTHONUTF8=0, say, names of files are no texts that JSON, Ray or other processes could be given.
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"  # for the processes that it starts
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    write_out_unprintable(sys.stdout)
