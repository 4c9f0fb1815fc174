"""Run a script, or a module, in this process as Python does, up to its end."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import os
import sys
import traceback
import types
from collections.abc import Sequence

from dmls_ray.util.programs import module_of


def run_as_main(program: str, words: Sequence[str]) -> None:
    """Run a program as the main module of this process.

    The module stays `__main__` until the process ends, unlike with `runpy`: what the program pickles, and the processes
    that it starts, find it there.

    Args:
        program: path of a file, or `-m` and the name of a module.
        words: its arguments.
    """
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    module = module_of(program)
    if module:
        # As `python -m`: modules of the working folder come first, and argv[0] is -m while the parents are imported.
        sys.argv = ["-m", *words]
        sys.path.insert(0, os.getcwd())
        spec = _spec_to_run(module)
        path = str(spec.origin)
    else:
        path = program
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        spec = None
    sys.argv = [path, *words]
    loader = importlib.machinery.SourceFileLoader("__main__", os.path.abspath(path))
    main.__dict__.update(__file__=path, __loader__=loader, __spec__=spec)
    if spec is not None:
        main.__dict__.update(__package__=spec.parent, __loader__=spec.loader)
    code = compile(loader.get_data(os.path.abspath(path)), path, "exec", dont_inherit=True)
    exec(code, vars(main))


def _spec_to_run(module: str) -> importlib.machinery.ModuleSpec:
    """Where the code of a module is that is run, which of a package is its `__main__`; imports its parents.

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations is not None:
        module += ".__main__"
        spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin or not spec.has_location:
        raise ModuleNotFoundError(f"No module named {module!r} that can be run", name=module)
    return spec


def place_in_program(error: BaseException) -> str:
    """The last line of the traceback that is in the folder of the main program: `train.py, line 3`; empty without.

    Also of a SyntaxError, whose message has its own place.
    """
    if isinstance(error, SyntaxError):
        return ""
    return place_of(traceback.extract_tb(error.__traceback__))


def place_of(frames: traceback.StackSummary) -> str:
    """The last of some frames that is in the folder of the main program, the outermost frame first."""
    folder = os.path.dirname(os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or ""))
    named = [frame for frame in frames if not frame.filename.startswith("<")]  # "<frozen os>" is no file
    own = [frame for frame in named if os.path.abspath(frame.filename).startswith(folder + os.sep)]
    if not own:
        return ""
    return f"{os.path.relpath(own[-1].filename, folder)}, line {own[-1].lineno}"
