"""`uninterrupted`: a block of code that Ctrl-C and SIGTERM do not cut short."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
