"""`ForkServer`: a process that has imported what runs need, and forks one child process after the other.

A fork takes hundredths of a second where a new interpreter takes seconds to import PyTorch. The server is a copy of a
template where there is one. It starts no
thread and uses no GPU, so that its children may. On Linux, whatever a child has started ends with it, and a child
ends with its server, which ends with its client; elsewhere processes may stay whose parent has ended. If the server
itself is killed, what its child has started stays.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import psutil  # noqa: F401 - before the handler of a signal needs it, which may interrupt an import

from dmls_ray.util.interpreter import CHILD_SUBREAPER, DEATH_SIGNAL, command_of_call, exit_now, kill_descendants, prctl
from dmls_ray.util.template_request import RUNS, known_templates, request

_FORK, _KILL = b"f", b"k"
"""What the client asks for: a child, with the descriptors of its connection and of its status; the end of the child."""


class ForkServer:
    """Starts a server, and its children.

    Args:
        prepare: `module:function` that the server calls before the first fork, to import what its children need.
        arguments: arguments of the function.
    """

    def __init__(self, prepare: str, *arguments: str) -> None:
        self.lock = threading.Lock()
        """Held while the end of a child is noted, after which it cannot be killed."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._wait_for_end = self._start(theirs.fileno(), prepare, arguments)

    @staticmethod
    def _start(descriptor: int, prepare: str, arguments: Sequence[str]) -> Callable[[], object]:
        """Start the server at the other end of its socket; returns a function that waits for its end."""
        if folder := known_templates():
            serve_here = f"{__name__}:serve", (prepare, arguments)
            with contextlib.suppress(OSError):  # the template has ended
                copy = request(RUNS, *serve_here, folder=folder, descriptors=[descriptor])
                return functools.partial(_wait_for_end, copy)
        command = command_of_call(__name__, "serve", (descriptor, prepare, arguments))
        process = subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.DEVNULL)
        return process.wait

    def wait_until_ready(self) -> None:
        """Wait until the server is prepared, or has failed to be."""
        select.select([self._socket], [], [])

    def start(self, target: Callable[..., None], *arguments: Any) -> ForkedProcess:
        """Call `target(connection, *arguments)` in a child; the child before must have ended.

        Args:
            target: an importable function. The child has this process's module search path and working folder.
            arguments: pickled; the connection is one end of a duplex pipe.

        Raises:
            OSError: the server has ended.
        """
        connection, theirs = Pipe()
        status, written = os.pipe()
        try:
            socket.send_fds(self._socket, [_FORK], [theirs.fileno(), written])
        finally:
            theirs.close()
            os.close(written)
        connection.send((sys.path, os.getcwd()))
        connection.send((target, arguments))
        return ForkedProcess(connection, status, self)

    def kill_child(self) -> None:
        """End the child and all that it has started."""
        self._socket.send(_KILL)

    def close(self) -> None:
        """End the server and its child."""
        self._socket.close()
        self._wait_for_end()


_STACKS_S = 0.1
"""How long a child that is killed has for the stacks of its threads."""


class ForkedProcess:
    """A child of a `ForkServer`."""

    def __init__(self, connection: Connection, status: int, server: ForkServer) -> None:
        self.connection = connection
        self.exit_code: int | None = None
        """None before `wait`; negative: the number of the signal that ended it."""
        self.was_killed = False
        """Whether `wait` has ended it."""
        self._status = os.fdopen(status, encoding="ascii")
        self._server = server

    def kill(self) -> None:
        """End it and all that it has started, from any thread; without effect if it has ended."""
        with self._server.lock:
            if self.exit_code is None:
                self._server.kill_child()

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until it has ended, with all that it has started; returns its exit code.

        After the timeout it is killed.
        """
        ready, _, _ = select.select([self._status], [], [], timeout_s)
        if not ready:
            self.kill()
            self.was_killed = True
        with self._status:
            written = self._status.read()
        with self._server.lock:
            # Nothing is written where the server was killed, and its child with it.
            self.exit_code = int(written or -signal.SIGKILL)
        self.connection.close()
        return self.exit_code


def _wait_for_end(connection: socket.socket) -> None:
    with connection:
        connection.recv(1)


def serve(descriptor: int, prepare: str, arguments: Sequence[str]) -> None:
    """Serve the client at the other end of a socket until it closes its end, in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the client decides
    children: list[int] = []
    signal.signal(signal.SIGTERM, functools.partial(_end_all, children))
    # The end of the socket would not be seen while another process has inherited the client's end of it.
    prctl(DEATH_SIGNAL, signal.SIGTERM)
    prctl(CHILD_SUBREAPER, 1)
    client = socket.socket(fileno=descriptor)
    pkgutil.resolve_name(prepare)(*arguments)
    client.send(b"r")

    ended, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup)
    while True:
        try:
            command, descriptors, _, _ = socket.recv_fds(client, 1, 2)
        except ConnectionResetError:  # the client has ended before it had read all answers
            return
        if not command:
            return
        if command == _KILL:
            continue  # the child had ended when its end was asked for
        connection, status = descriptors
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for inherited in (ended, wakeup, status, client.detach()):
                os.close(inherited)
            _run_child(connection, server)
        os.close(connection)
        children[:] = [pid]
        _watch(pid, status, client, ended)
        children.clear()


def _watch(pid: int, status: int, client: socket.socket, ended: int) -> None:
    """Wait for the end of a child, and write it."""
    waited = 0
    while not waited:
        ready, _, _ = select.select([client.fileno(), ended], [], [])
        if client.fileno() in ready:
            with contextlib.suppress(ConnectionResetError):
                client.recv(1)  # a request to kill the child, or nothing or a reset, where the client has ended
            _kill_after_its_stacks(pid)
        if ended in ready:
            os.read(ended, 4096)
            waited, code = os.waitpid(pid, os.WNOHANG)
    kill_descendants()
    with contextlib.suppress(BrokenPipeError), os.fdopen(status, "w", encoding="ascii") as file:
        file.write(str(os.waitstatus_to_exitcode(code)))


def _kill_after_its_stacks(pid: int) -> None:
    """Let a child write the stacks of its threads, which say where it hangs, and kill it."""
    os.kill(pid, signal.SIGUSR1)
    time.sleep(_STACKS_S)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _end_all(children: Sequence[int], *_: object) -> NoReturn:
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            _kill_after_its_stacks(pid)
    kill_descendants()
    os._exit(1)


def _run_child(connection: int, server: int) -> NoReturn:
    """Make the call that the client has sent, and end."""
    prctl(CHILD_SUBREAPER, 0)
    prctl(DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    os.setsid()
    os.set_inheritable(connection, False)  # the program that takes the place of a child sends nothing
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # which this process may have from Ray's
    # Into its standard error, whatever that is by then.
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    code = 1
    try:
        pipe = Connection(connection)
        sys.path[:], folder = pipe.recv()
        os.chdir(folder)
        target, arguments = pipe.recv()
        target(pipe, *arguments)
        code = 0
    except BaseException:  # noqa: BLE001 - whatever a child raises ends this process only
        traceback.print_exc()
    finally:
        exit_now(code)
