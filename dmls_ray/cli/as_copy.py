"""A command in a copy of a template that `dmls-ray up` holds: its start by a supervisor, and the copy.

This module loads little, since every supervisor loads it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dmls_ray.execution.supervisor import CHANNEL, channel
from dmls_ray.util.standby import Standby, find_standby, use_standby
from dmls_ray.util.template_request import COMMANDS, request

PREPARE = f"{__name__}:prepare"
"""What imports all that a command needs, in the template."""


class Copy:
    """The process of a command that is a copy of a template, and no child of this process.

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
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """None while it runs."""
        return -signal.SIGKILL if select.select([self._life], [], [], 0)[0] else None

    def wait(self) -> int:
        """Wait for its end; returns the exit code of a process that was killed, unless it has reported another."""
        with contextlib.suppress(OSError):
            self._life.recv(1)
        return -signal.SIGKILL


def copy_of_standby(heartbeat: int, given: Mapping[str, Any]) -> Copy | None:
    """Start the command of this process in a copy of a template of the standby; None where there is none that suits.

    Args:
        heartbeat: descriptor of the pipe for it.
        given: what it is given.
    """
    standby = find_standby()
    *_, option, program = ["", *sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]]
    if standby is None or option == "-c":
        return None
    if differing := standby.differences():
        _say(f"dmls-ray up is not used: {differing[0]} is another than where it was given. dmls-ray up starts it anew.")
        return None
    ours, theirs = socket.socketpair()
    be_copy = f"{__name__}:be_command"
    arguments = [program, option == "-m", sys.argv, sys.orig_argv, dict(given), asdict(standby)]
    with contextlib.suppress(OSError):
        with theirs:
            request(COMMANDS, be_copy, arguments, folder=standby.templates, descriptors=[theirs.fileno(), heartbeat])
        if pid := ours.recv(16):
            _say("Processes of dmls-ray up are used.")
            return Copy(int(pid), ours)
    ours.close()
    return None  # the standby has ended


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # the terminal is gone
        print(line, file=sys.stderr, flush=True)


# --- in the copy --------------------------------------------------------------------------------------------


def prepare() -> None:
    """Import what commands need."""
    for module in (
        "pandas", "rich.live", "scipy.stats", "dmls_ray.cli.ab", "dmls_ray.cli.doctor", "dmls_ray.cli.main",
        "dmls_ray.cli.sweep_command", "dmls_ray.cli.sweep_script", "dmls_ray.cli.tune", "dmls_ray.execution.executor",
    ):  # fmt: skip
        importlib.import_module(module)
    gc.freeze()


def be_command(
    life: int,
    heartbeat: int,
    program: str,
    is_module: bool,
    words: list[str],
    command: list[str],
    given: Mapping[str, Any],
    standby: Mapping[str, Any],
) -> None:
    """Do what a supervisor would have a new interpreter do.

    Args:
        life: descriptor of a socket; the supervisor has its other end.
        heartbeat: descriptor of the pipe of the heartbeat.
        program: path of the script, or name of the module.
        is_module: whether it is a module.
        words: `sys.argv` of the supervisor.
        command: its `sys.orig_argv`.
        given: what the heartbeat is given.
        standby: the fields of the standby.
    """
    use_standby(Standby(**standby))
    os.write(life, str(os.getpid()).encode())
    # This process is no child of the supervisor, so its end by the kernel comes from the socket.
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([life], [], [], 0)[0]:
        return
    sys.argv, sys.orig_argv = words, command
    os.environ[CHANNEL] = channel(heartbeat, os.getppid(), given)
    if is_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")
