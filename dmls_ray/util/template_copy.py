"""`Copy`: a process that is a copy of a template, and ends with the process that has asked for it. Loads little."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
from collections.abc import Sequence
from typing import Any

from dmls_ray.util.template_request import request

_PID_BYTES = 16
_BEGIN_TIMEOUT_S = 10.0
"""How long a template that is stopped is waited for."""


class Copy:
    """The process, which is no child of this one.

    Args:
        pid: its id.
        life: a socket whose other end is open until the copy ends. The end of this one is the end of the copy.
    """

    def __init__(self, pid: int, life: socket.socket) -> None:
        self._pid, self._life = pid, life

    def send_signal(self, number: int, /) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def kill(self) -> None:
        """Kill it, and what it has started."""
        import psutil  # here, since a command is to start soon

        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self._pid).children(recursive=True):
                child.kill()
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """None while it runs."""
        return -signal.SIGKILL if select.select([self._life], [], [], 0)[0] else None

    def wait(self) -> int:
        """Wait for its end; returns the exit code of a process that was killed, since its own is not known."""
        with contextlib.suppress(OSError):
            self._life.recv(1)
        return -signal.SIGKILL


def start_copy(
    name: str,
    call: str,
    arguments: Sequence[Any],
    *,
    descriptors: Sequence[int] = (),
    **options: Any,
) -> Copy | None:
    """Ask a template for a copy that makes a call, and wait until it has begun; None where it does not.

    Args:
        name, call, arguments, descriptors: as of `request`. The first descriptor that the function gets is that of its
            life, for `live_with`.
        options: further ones of `request`.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(_BEGIN_TIMEOUT_S)
    with contextlib.suppress(OSError):
        with theirs:
            request(name, call, arguments, descriptors=[theirs.fileno(), *descriptors], **options)
        if pid := ours.recv(_PID_BYTES):
            ours.settimeout(None)
            return Copy(int(pid), ours)
    ours.close()
    return None


def live_with(life: int) -> None:
    """Say that this copy has begun, and let it get SIGTERM when the process that has asked for it ends.

    Args:
        life: descriptor of the socket that leads there.
    """
    os.set_inheritable(life, True)  # by a program that takes the place of this one
    with contextlib.suppress(BrokenPipeError):  # it was waited for too long
        os.write(life, str(os.getpid()).encode())
    signal_at_end(life, signal.SIGTERM, os.getpid())


def signal_at_end(life: int, number: int, owner: int) -> None:
    """Let a signal arrive when the other end of a socket is closed, or now if it is.

    Args:
        life: descriptor of the socket, from which nothing is read.
        number: the signal.
        owner: the process that gets it; negative for a process group.
    """
    fcntl.fcntl(life, fcntl.F_SETSIG, number)
    fcntl.fcntl(life, fcntl.F_SETOWN, owner)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([life], [], [], 0)[0]:
        os.kill(owner, number)
