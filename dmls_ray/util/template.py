"""`Template`: a process that has imported what others need, and is copied (forked) instead of starting another one.

A copy takes hundredths of a second, where a new interpreter takes seconds to import PyTorch, and shares the memory of
what was imported. A template starts no thread and uses no GPU, so that its copies may. It is asked for a copy through a
socket in a private folder; see `template_request.py`.

A copy ends by itself, and at the latest with its template, which ends with the process that has started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import psutil  # noqa: F401 - before the handler of a signal needs it, which may interrupt an import

from dmls_ray.util.interpreter import CHILD_SUBREAPER, command_of_call, exit_now, kill_descendants, prctl
from dmls_ray.util.template_copy import signal_at_end
from dmls_ray.util.template_request import HEADER_BYTES

_MOST_DESCRIPTORS = 16


class Template:
    """Starts a template and, as a copy of it, further ones that have imported more.

    Args:
        prepares: path of a socket -> `module:function` that the template behind it calls first, to import what its
            copies need. Each template is a copy of the one before.
        environment: further variables, for what reads them when it is imported. Copies do not have them.
    """

    def __init__(self, prepares: Mapping[Path, str], environment: Mapping[str, str]) -> None:
        listeners = [socket.socket(socket.AF_UNIX) for _ in prepares]
        for listener, path in zip(listeners, prepares, strict=True):
            listener.bind(str(path))
            listener.listen(128)
        self._life, theirs = socket.socketpair()
        """Its end is the end of the templates."""
        given = [listener.fileno() for listener in listeners], list(prepares.values()), theirs.fileno()
        descriptors = [*given[0], theirs.fileno()]
        command = command_of_call(__name__, "be_template", given)
        environment = {**os.environ, **environment}
        # Where it fails there is no template, and processes that start without it say why.
        none = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, env=environment, pass_fds=descriptors, stdin=none, stdout=none, stderr=none
        )
        for descriptor in (*listeners, theirs):
            descriptor.close()

    def end(self) -> None:
        """Let the templates end, and all copies; see `wait`."""
        self._life.close()

    def wait(self) -> None:
        """Wait until they have ended."""
        self._process.wait()


def be_template(listeners: Sequence[int], prepares: Sequence[str], life: int) -> None:
    """Be a template until the other end of `life` is closed; the templates after the first are copies of it."""
    os.setsid()  # no signal of a terminal arrives here
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # this process may have that of a process with Ray
    prctl(CHILD_SUBREAPER, 1)
    # A signal, since an import may take long.
    signal.signal(signal.SIGIO, _end_with_copies)
    signal_at_end(life, signal.SIGIO, -os.getpgrp())
    _make_copies(listeners, prepares)


def _end_with_copies(*_: object) -> NoReturn:
    kill_descendants()
    os._exit(0)


def _make_copies(listeners: Sequence[int], prepares: Sequence[str]) -> NoReturn:
    """Import what is needed, start the templates that need more, and serve who asks for copies."""
    listener, *others = listeners
    prepare, *further = prepares
    pkgutil.resolve_name(prepare)()
    if others and os.fork() == 0:
        os.close(listener)
        _make_copies(others, further)
    for descriptor in others:
        os.close(descriptor)
    # Copies that have ended are no children to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    door = socket.socket(fileno=listener)
    while True:
        connection, _ = door.accept()
        with contextlib.suppress(OSError, ValueError):  # whoever asked has ended before it had said what for
            given, descriptors = _receive(connection)
            if os.fork() == 0:
                door.close()
                _become(given, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        connection.close()


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER_BYTES, _MOST_DESCRIPTORS)
    with connection.makefile("rb") as file:
        # A request that is not whole is no JSON.
        given: dict[str, Any] = json.loads(file.read(int.from_bytes(header)))
    return given, descriptors


def _become(given: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Make the call that was asked for in the place of the process that has asked, and end."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if given["ignores_hangup"] else signal.SIG_DFL)
        prctl(CHILD_SUBREAPER, 0)
        for stream, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        _open_streams()
        os.environ.clear()
        os.environ.update(given["environment"])
        os.sched_setaffinity(0, given["cores"])
        sys.path[:] = given["path"]
        os.chdir(given["folder"])
        tempfile.tempdir = None  # it is of the environment
        if random := sys.modules.get("numpy.random"):
            random.seed()  # else all copies draw the same
        pkgutil.resolve_name(given["call"])(*descriptors[3:], *given["arguments"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:  # noqa: BLE001 - whatever a copy raises ends this process only
        traceback.print_exc()
    finally:
        exit_now(code)


def _open_streams() -> None:
    """Make the standard streams anew, as an interpreter does at its start: they know whether they are a terminal."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        mode = "w" if descriptor else "r"
        stream: Any = open(descriptor, mode, encoding=before.encoding, errors=before.errors, closefd=False)  # noqa: SIM115
        is_line_buffered = name == "stderr" or stream.line_buffering
        stream.reconfigure(line_buffering=is_line_buffered, write_through=before.write_through)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
