"""Run a script in this process as Python does, up to its end."""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import sys
import traceback
import types
from collections.abc import Sequence


def run_as_main(script: str, words: Sequence[str]) -> None:
    """Run a script as the main module of this process.

    The module stays `__main__` until the process ends, unlike with `runpy`: what the script pickles, and the processes
    that it starts, find it there.

    Args:
        script: path of the file.
        words: its arguments.
    """
    path = os.path.abspath(script)
    sys.argv = [script, *words]
    sys.path.insert(0, os.path.dirname(path))
    main = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__.update(__file__=script, __builtins__=builtins, __loader__=loader, __spec__=None)
    sys.modules["__main__"] = main
    code = compile(loader.get_data(path), script, "exec", dont_inherit=True)
    exec(code, vars(main))


def place_in(script: str, error: BaseException) -> str:
    """The last line of the traceback that is in the folder of the script: `train.py, line 3`; empty without one."""
    folder = os.path.dirname(os.path.abspath(script))
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.abspath(frame.filename).startswith(folder + os.sep)]
    return f"{os.path.relpath(own[-1].filename, folder)}, line {own[-1].lineno}" if own else ""
