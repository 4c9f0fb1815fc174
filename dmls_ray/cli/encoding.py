"""Characters on the command line, in files and in the output, whatever the locale is."""

from __future__ import annotations

import os
import sys

from dmls_ray.util.streams import write_out_unprintable


def use_utf8() -> None:
    """Start the command of this process again in Python's UTF-8 mode where it has begun with another encoding.

    With LC_ALL=C and PYTHONUTF8=0, say, names of files are no texts that JSON, Ray or other processes could be given.
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"  # for the processes that it starts
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    write_out_unprintable(sys.stdout)
