"""`uninterrupted`: a block that Ctrl-C does not leave halfway."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
    interrupts = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda given, _: arrived.append(given)) for number in interrupts}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        raise KeyboardInterrupt
