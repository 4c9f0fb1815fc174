"""Output streams without a reader or without the characters that are written, and the encoding of a process."""

from __future__ import annotations

import io
import os
import sys
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


def use_utf8() -> None:
    """Start the command of this process again in Python's UTF-8 mode where it has begun with another encoding.

    With LC_ALL=C and PYTHONUTF8=0, say, names of files are no texts that JSON, Ray or other processes could be given.
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"  # for the processes that it starts
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    write_out_unprintable(sys.stdout)
