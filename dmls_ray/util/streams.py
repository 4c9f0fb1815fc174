"""Output streams without a reader."""

from __future__ import annotations

import os
from typing import TextIO


def discard_output(stream: TextIO) -> None:
    """Discard what is still written to a stream whose reader has left (`| head`); Python would end in a traceback."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
