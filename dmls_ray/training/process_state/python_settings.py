"""The settings of Python, its standard library and NumPy."""

from __future__ import annotations

import gc
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dmls_ray.training.process_state.setting import Setting, attributes, contents

_SET_ONCE = ("TRITON_PTXAS_PATH", "TRITON_LIBDEVICE_PATH")
"""Variables that PyTorch's compiler sets once in a process, and needs from then on."""

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def python_settings() -> Iterable[Setting]:
    """The settings, those first on which others depend."""
    yield Setting("environment variables", lambda: dict(os.environ), _set_environment)
    yield Setting("working directory", _working_directory, os.chdir)
    yield Setting("mask of new files", _umask, os.umask)
    yield Setting("locale", lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name))
    yield Setting("resource limits", _limits, _set_limits)
    yield Setting("signal handlers", _signal_handlers, _set_signal_handlers)
    yield Setting("blocked signals", lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()), _block_signals)
    yield Setting("timers", lambda: [signal.getitimer(timer)[0] > 0 for timer in _TIMERS], _stop_timers)

    yield contents("sys.path", sys, "path")
    yield contents("sys.argv", sys, "argv")
    yield from attributes(sys, "stdin", "stdout", "stderr", "excepthook", "unraisablehook", prefix="sys.")
    yield from attributes(threading, "excepthook", prefix="threading.")
    yield Setting("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit)
    yield Setting("trace function", sys.gettrace, sys.settrace)
    yield Setting("profile function", sys.getprofile, sys.setprofile)
    yield Setting("garbage collection", gc.isenabled, lambda on: gc.enable() if on else gc.disable())
    yield Setting("thresholds of garbage collection", gc.get_threshold, lambda values: gc.set_threshold(*values))
    yield Setting("start method of processes", _start_method, _set_start_method)
    yield Setting("timeout of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout)

    yield Setting("warnings filters", lambda: list(warnings.filters), _set_warnings_filters)
    yield from attributes(warnings, "showwarning", "formatwarning", prefix="warnings.")
    root = logging.getLogger()
    yield contents("handlers of the root logger", root, "handlers")
    yield Setting("level of the root logger", lambda: root.level, root.setLevel)
    yield Setting("disabled levels of logging", lambda: root.manager.disable, logging.disable)

    yield Setting("generator of random", random.getstate, random.setstate)
    yield Setting("generator of NumPy", np.random.get_state, np.random.set_state, comparable=False)
    yield Setting("floating-point errors of NumPy", np.geterr, lambda kinds: np.seterr(**kinds))


def _set_environment(before: Mapping[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        if name not in _SET_ONCE:
            del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""  # it was removed


def _umask() -> int:
    """The mask of the process. It can only be read by setting it, so what is set is what it nearly always is."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _limits() -> dict[int, tuple[int, int]]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {number: resource.getrlimit(number) for number in {getattr(resource, name) for name in names}}


def _set_limits(before: Mapping[int, tuple[int, int]]) -> None:
    for number, limits in before.items():
        if resource.getrlimit(number) != limits:
            resource.setrlimit(number, limits)


def _signal_handlers() -> dict[int, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}  # no other thread can change them
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _set_signal_handlers(before: Mapping[int, Any]) -> None:
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def _block_signals(before: set[signal.Signals]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop_timers(before: object) -> None:
    for timer in _TIMERS:
        signal.setitimer(timer, 0)


def _start_method() -> str | None:
    return multiprocessing.get_start_method(allow_none=True)


def _set_start_method(name: str | None) -> None:
    multiprocessing.set_start_method(name, force=True)


def _set_warnings_filters(before: list[Any]) -> None:
    # This makes Python forget which warnings it has decided on, which replacing the list does not.
    warnings.resetwarnings()
    warnings.filters[:] = before  # type: ignore[index]
