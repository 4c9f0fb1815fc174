"""The supervisor of a sweep: starts the command again in another process, and again when Ray or that process dies.

It loads neither Ray nor PyTorch, and nothing of Ray is in its process, so no failure of Ray reaches it. The sweep
resumes from its records, and reports to its supervisor by a `Heartbeat`. On Linux every process that the sweep starts
ends with it, also one whose parent has died; on macOS only those whose parents live are found.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dmls_ray.util.interpreter import CHILD_SUBREAPER, DEATH_SIGNAL, handle_interrupts, kill_descendants, prctl

EXIT_INTERRUPTED = 130

STOP_TIMEOUT_S = 15.0
"""How long a sweep that is to stop may be silent: it may wait for a Ray that is gone."""

END_TIMEOUT_S = 10.0
"""How long killed processes may take to end. One that waits for a device or a network drive takes longer."""

_POLL_S = 1.0


def stopped_text(folder: str = "", *, is_fresh: bool = False) -> str:
    """What is printed of a sweep that was stopped.

    Args:
        folder: its results folder; empty where it has none yet.
        is_fresh: whether the folder was made for `--fresh`.
    """
    if not folder:
        return "Stopped before a run began."
    where = shlex.quote(folder)
    again = f"the same command with --out {where} in place of --fresh" if is_fresh else "the same command"
    kept = f"Stopped. Runs that had ended are kept, and {again} runs the others."
    return f"{kept} dmls-ray table {where} shows what is there."


class Process(Protocol):
    """The process of a sweep."""

    def send_signal(self, number: int, /) -> None:
        """Send it a signal."""

    def kill(self) -> None:
        """Kill it."""

    def poll(self) -> int | None:
        """None while it runs."""

    def wait(self) -> int:
        """Wait for its end; returns its exit code, negative for a signal."""


class Supervisor:
    """Runs the command of this process in another one, follows its heartbeat, and starts it again.

    Args:
        copy: starts the command as a copy of another process, where there is one that serves it. It takes the
            descriptor of the pipe for the heartbeat, and what `Heartbeat.of_supervisor` is to be given.
    """

    def __init__(self, copy: Callable[[int, Mapping[str, Any]], Process | None]) -> None:
        self._copy = copy
        self._sweep: Process | None = None
        self._status: dict[str, Any] = {"done": 0, "restarts": 0, "folder": "", "is_fresh": False, "reason": ""}
        """What the sweep has reported."""
        self._silent_s = 0.0
        self._is_stopped = False
        """A signal asked to stop."""

    def run(self) -> int:
        """Start the sweep until it ends by itself, is stopped, or died too often; returns its exit code."""
        prctl(CHILD_SUBREAPER, 1)
        handle_interrupts(self._forward)
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            signal.signal(signal.SIGTSTP, self._suspend)
        restarts = 0
        while True:
            done = self._status["done"]
            code, reason = self._follow(is_restart=restarts > 0 or done > 0)
            has_ended = code >= 0 and code != EXIT_LOST and self._status["ended"]
            is_cut_short = self._is_stopped and not has_ended
            if is_cut_short or code == EXIT_INTERRUPTED:
                # Here and not in the sweep's process, which a thread of Ray may end before it has printed anything.
                print_aside(stopped_text(self._status["folder"], is_fresh=self._status["is_fresh"]))
                kill_descendants(END_TIMEOUT_S)
                return EXIT_INTERRUPTED
            kill_descendants(END_TIMEOUT_S)
            if self._is_stopped or not reason:
                return code
            restarts = 1 if self._status["done"] > done else restarts + 1
            if restarts > self._status["restarts"]:
                print_aside(f"{reason}. Runs kept: {self._status['done']}; the same command runs the others.")
                return EXIT_LOST
            print_aside(f"{reason}. Runs done: {self._status['done']}; the sweep starts again (restart {restarts}).")
            self._pause(2 ** (restarts - 1) - 1)

    def _forward(self, number: int, _: object) -> None:
        self._is_stopped = True
        self._silent_s = 0.0
        if self._sweep is not None:
            self._sweep.send_signal(number)

    def _suspend(self, *_: object) -> None:
        """Stop together with the sweep (Ctrl-Z), which is no process of this terminal where it is a copy of another."""
        if self._sweep is not None:
            self._sweep.send_signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._sweep is not None:
            self._sweep.send_signal(signal.SIGCONT)

    def _pause(self, seconds: int) -> None:
        """Wait before a restart: a cluster that was joined may come back."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_stopped:
            time.sleep(0.1)

    # --- one start ------------------------------------------------------------------------------------------

    def _follow(self, *, is_restart: bool) -> tuple[int, str]:
        """Run the sweep to its end.

        Returns:
            Its exit code, negative for a signal; and why it is to be started again, empty where it has ended by itself.
        """
        reader, sweep = self._start(is_restart=is_restart)
        silence, rest = "", b""
        while True:
            if select.select([reader], [], [], _POLL_S)[0]:
                text = os.read(reader, 65536)
                if not text:
                    break
                *lines, rest = (rest + text).split(b"\n")
                for line in lines:
                    self._status |= json.loads(line)
                self._silent_s = 0.0
                continue
            if sweep.poll() is not None:  # a process that it has left holds the pipe
                break
            # Not the time that has passed: this process may have been stopped together with the sweep.
            self._silent_s += _POLL_S
            if self._silent_s > self._patience_s and not silence:
                silence = self._status["reason"] or f"The sweep did not answer for {self._patience_s:g} s"
                sweep.kill()
        code = sweep.wait()
        os.close(reader)
        if silence:
            return code, silence
        if self._status["ended"]:
            code = self._status["code"]
            return code, str(self._status["reason"]) if code == EXIT_LOST else ""
        if code < 0:
            return code, f"The process of the sweep was ended by {signal.Signals(-code).name}"
        return code, f"The process of the sweep ended with exit code {code}"

    def _start(self, *, is_restart: bool) -> tuple[int, Process]:
        """Start the command again in a new process; returns also the end of a pipe where its reports arrive."""
        reader, writer = os.pipe()
        given = {
            "folder": self._status["folder"] if self._status["is_fresh"] else "",
            "is_restart": is_restart,
        }
        self._silent_s = 0.0
        self._status |= {"ended": False, "within_s": None, "reason": ""}
        # What has ended without notice may have been the other process.
        sweep = None if is_restart else self._copy(writer, given)
        if sweep is None:
            command = [sys.executable, *sys.orig_argv[1:]]
            environment = {**os.environ, CHANNEL: channel(writer, os.getpid(), given)}
            sweep = subprocess.Popen(command, env=environment, pass_fds=[writer])
        self._sweep = sweep
        if self._is_stopped:
            sweep.send_signal(signal.SIGTERM)  # the signal came before it could be sent on
        os.close(writer)
        return reader, sweep

    @property
    def _patience_s(self) -> float:
        """How long the sweep may be silent now."""
        within_s = self._status["within_s"]
        if within_s is None:
            return float("inf")
        return min(within_s, STOP_TIMEOUT_S) if self._is_stopped else float(within_s)


def print_aside(line: str) -> None:
    """Print a line on standard error, if there is one."""
    with contextlib.suppress(OSError):  # the terminal is gone
        if sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)


CHANNEL = "DMLS_RAY_SUPERVISOR"
"""Environment variable with what a supervisor passes on to the process of a sweep, as JSON."""


def channel(descriptor: int, parent: int | None, given: Mapping[str, Any]) -> str:
    """The value of `CHANNEL` for the process of a sweep.

    Args:
        descriptor: its end of the pipe for the heartbeat.
        parent: the process with which it ends, if that is its parent.
        given: what its heartbeat is given.
    """
    return json.dumps({"descriptor": descriptor, "parent": parent, "given": given})


EXIT_LOST = 75
"""Exit code of a sweep that lost Ray or one of its own processes: the same command continues (EX_TEMPFAIL)."""


class Heartbeat:
    """Reports to the supervisor of this process; without a supervisor, nothing.

    Args:
        descriptor: the writing end of a pipe; None without a supervisor.
        folder: results folder that an earlier start of the sweep made for `--fresh`; empty for none.
        is_restart: whether the sweep was started before.
    """

    def __init__(self, descriptor: int | None = None, *, folder: str = "", is_restart: bool = False) -> None:
        self._descriptor = descriptor
        self.is_supervised = descriptor is not None
        self.folder, self.is_restart = folder, is_restart
        self.reported: dict[str, Any] = {}
        """What was reported so far, for a process without a supervisor."""

    @classmethod
    def of_supervisor(cls) -> Heartbeat:
        """The heartbeat of a process that a supervisor started; from now on, the process ends with its supervisor."""
        # No process that this one starts is the supervisor's.
        found = json.loads(os.environ.pop(CHANNEL))
        if found["parent"] is not None:
            # Not SIGKILL, after which some of Ray's processes would stay for a minute.
            prctl(DEATH_SIGNAL, signal.SIGTERM)
            if os.getppid() != found["parent"]:
                sys.exit(EXIT_LOST)
        os.set_inheritable(found["descriptor"], False)
        os.set_blocking(found["descriptor"], False)
        return cls(found["descriptor"], **found["given"])

    def report(self, **facts: object) -> None:
        """Report that this process gets on, with facts: `done`, the number of runs that have a row, `ended`, `folder`
        and whether it `is_fresh`, `reason`, `restarts`, or `within_s`, the seconds until the next report at the latest;
        None: no limit.

        Raises:
            KeyboardInterrupt: the supervisor is gone, where the system does not end this process with it (macOS).
        """
        if self._descriptor is None:
            self.reported |= facts
            return
        line = json.dumps(facts) + "\n"
        try:
            with contextlib.suppress(BlockingIOError):  # the supervisor is stopped
                os.write(self._descriptor, line.encode())
        except BrokenPipeError as error:
            raise KeyboardInterrupt from error
