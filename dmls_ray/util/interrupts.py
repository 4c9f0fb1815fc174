"""`uninterrupted`: a block that Ctrl-C does not leave halfway; `arrivals`: whether it was pressed."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the block is over. Outside the main thread they cannot arrive.

    Raises:
        KeyboardInterrupt: at the end of the block, if a signal arrived in it.
    """
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
        raise KeyboardInterrupt


@contextmanager
def arrivals() -> Iterator[Callable[[], bool]]:
    """A function that says, in any thread, whether Ctrl-C or SIGTERM has arrived in the block.

    Python itself handles a signal only when the main thread returns from the call that it is in.
    """
    arrived = False
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)

    def look() -> bool:
        nonlocal arrived
        with suppress(OSError):  # nothing has arrived, or the block is over
            arrived = arrived or any(number in _INTERRUPTS for number in reader.recv(4096))
        return arrived

    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield look
    finally:
        signal.set_wakeup_fd(before)
        reader.close()
        writer.close()
