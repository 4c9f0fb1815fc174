"""`Heartbeat`: what the process of a sweep reports to its supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys

CHANNEL = "DMLS_RAY_SUPERVISOR"
"""Environment variable with what a supervisor passes on to the process of a sweep, as JSON."""

EXIT_LOST = 75
"""Exit code of a sweep that lost Ray or one of its own processes: the same command continues (EX_TEMPFAIL)."""

_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux."""


class Heartbeat:
    """Reports to the supervisor of this process; without a supervisor, nothing.

    Args:
        descriptor: the writing end of a pipe; None without a supervisor.
        folder: results folder that an earlier start of the sweep made for `--fresh`; empty for none.
        is_restart: whether the sweep was started before.
    """

    def __init__(self, descriptor: int | None = None, *, folder: str = "", is_restart: bool = False) -> None:
        self._descriptor = descriptor
        self.folder, self.is_restart = folder, is_restart

    @classmethod
    def of_supervisor(cls) -> Heartbeat:
        """The heartbeat of a process that a supervisor started; from now on, the process ends with its supervisor."""
        # No process that this one starts is the supervisor's.
        given = json.loads(os.environ.pop(CHANNEL))
        if sys.platform == "linux":
            # Not SIGKILL, after which some of Ray's processes would stay for a minute.
            ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, int(signal.SIGTERM))
        if os.getppid() != given["supervisor"]:
            sys.exit(EXIT_LOST)
        os.set_inheritable(given["descriptor"], False)
        os.set_blocking(given["descriptor"], False)
        return cls(given["descriptor"], folder=given["folder"], is_restart=given["is_restart"])

    @property
    def is_supervised(self) -> bool:
        """Whether there is a supervisor."""
        return self._descriptor is not None

    def beat(self, within_s: float | None) -> None:
        """Report that this process gets on, and the seconds until the next beat at the latest; None: no limit."""
        self.report(within_s=within_s)

    def report(self, **facts: object) -> None:
        """Report facts: `done`, `ended`, `folder`, `reason`, `restarts`, `stopped` or `within_s`.

        Raises:
            KeyboardInterrupt: the supervisor is gone, where the system does not end this process with it (macOS).
        """
        if self._descriptor is None:
            return
        line = json.dumps(facts) + "\n"
        try:
            with contextlib.suppress(BlockingIOError):  # the supervisor is stopped
                os.write(self._descriptor, line.encode())
        except BrokenPipeError as error:
            raise KeyboardInterrupt from error
