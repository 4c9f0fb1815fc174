"""Output streams without a reader, or without the characters that are written to them."""

from __future__ import annotations

import io
import os
from typing import TextIO


def discard_output(stream: TextIO) -> None:
    """Discard what is still written to a stream whose reader has left (`| head`); Python would end in a traceback."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def write_out_unprintable(stream: TextIO) -> None:
    """Write characters that the encoding of a stream lacks as escapes, as standard error does: `\\xfc`."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
        stream.reconfigure(errors="backslashreplace")
