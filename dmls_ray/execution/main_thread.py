"""`MainThread`: takes the main thread out of a call to a cluster that is lost or silent, or ends the process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from dmls_ray.util.errors import HeadLostError
from dmls_ray.util.interrupts import arrivals

if TYPE_CHECKING:
    from dmls_ray.cluster.connect import RaySession

_UNWIND_TIMEOUT_S = 5.0
"""Seconds that the main thread has to leave a call to a head that is gone or silent."""

_LOOK_INTERVAL_S = 0.5
"""Interval in which a thread looks whether Ctrl-C was pressed."""


class MainThread:
    """The main thread of a sweep, from outside. Where the sweep runs in another thread, nothing can be done.

    Args:
        leave: ends the process, which reports the error; None if the process is not the sweep's to end.
    """

    def __init__(self, leave: Callable[[HeadLostError | KeyboardInterrupt], None] | None) -> None:
        self._leave = leave
        self._is_used = threading.current_thread() is threading.main_thread()
        self._unwound, self._over = threading.Event(), threading.Event()

    def has_unwound(self) -> None:
        """The sweep does not wait for runs any more; it may still wait for the end of the cluster."""
        self._unwound.set()

    def wake(self) -> None:
        """Raise KeyboardInterrupt in it, if the sweep runs there."""
        if self._is_used:
            # A real signal wakes it wherever it waits, except inside a call of Ray to its head.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def interrupt(self, error: Callable[[], HeadLostError]) -> None:
        """End the sweep, whose cluster is lost; called from another thread.

        Args:
            error: makes what the process reports if the main thread is stuck.
        """
        if not self._is_used:
            return
        if self._unwound.is_set():
            is_stuck = not self._over.wait(_UNWIND_TIMEOUT_S)
        else:
            self.wake()
            is_stuck = not self._unwound.wait(_UNWIND_TIMEOUT_S)
        if is_stuck and self._leave is not None:
            self._leave(error())

    @contextmanager
    def watched(self, session: RaySession) -> Iterator[None]:
        """Leave a few seconds after Ctrl-C if the main thread waits for a head that does not answer."""
        with ExitStack() as stack:
            if self._is_used and self._leave is not None:
                given = session, stack.enter_context(arrivals())
                threading.Thread(target=self._leave_if_stuck, args=given, daemon=True, name="interrupts").start()
            try:
                yield
            finally:
                self._unwound.set()
                self._over.set()

    def _leave_if_stuck(self, session: RaySession, interrupted: Callable[[], bool]) -> None:
        while not self._over.wait(_LOOK_INTERVAL_S):
            is_stuck = interrupted() and not self._over.wait(_UNWIND_TIMEOUT_S)
            # A lost cluster interrupts the main thread, too.
            if is_stuck and not session.lost and session.is_silent(2.0) and self._leave is not None:
                self._leave(KeyboardInterrupt())
