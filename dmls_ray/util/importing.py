"""Import of a user-defined `module:function`; the search path of modules, the same in the driver and in each rank."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from dmls_ray.util.errors import ConfigError, UnknownNameError, UserCodeError
from dmls_ray.util.interpreter import command_of_call
from dmls_ray.util.programs import is_program
from dmls_ray.util.text import did_you_mean


def missing_extra(module: str, extra: str, asked: str) -> str:
    """Why what was asked for cannot be done without an optional library, and the way out; empty if it is installed.

    Args:
        module: the library.
        extra: the extra of this package that brings it.
        asked: what needs it: a flag with its value.
    """
    # A folder of that name in the working folder, as wandb makes one, has a spec, too, but no file that it comes from.
    if getattr(importlib.util.find_spec(module), "origin", None):
        return ""
    return f"{asked} needs {module}, which is not installed: pip install 'dmls_ray[{extra}]'."


def search_working_folder() -> None:
    """Let imports search the working folder: after Python's own modules, before installed packages.

    Python's own modules come first, because installed packages import them: a user's code.py would take their place.
    """
    here = str(Path.cwd())
    end = _end_of_standard_library()
    if not {here, ""} & set(sys.path[:end]):
        sys.path[end:] = [here, *(entry for entry in sys.path[end:] if entry != here)]


def leave_out_folder(folder: str) -> None:
    """Let imports no longer search a folder, as that of a script that is no module."""
    left_out = os.path.realpath(folder)
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != left_out]


def module_path() -> tuple[str, ...]:
    """The search path without the folders of Python's own modules and of installed packages."""
    installed = (os.path.realpath(sys.prefix) + os.sep, os.path.realpath(sys.base_prefix) + os.sep)
    folders = []
    for entry in sys.path:
        folder = os.path.abspath(entry)
        if os.path.exists(folder) and not os.path.realpath(folder).startswith(installed) and folder not in folders:
            folders.append(folder)
    return tuple(folders)


def search_module_path(path: Sequence[str]) -> None:
    """Let imports search the folders of another process's `module_path`: right after Python's own modules."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) not in path]
    end = _end_of_standard_library()
    sys.path[end:end] = path


_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages."""
_BUILT = (".egg", ".whl")
"""Ends of the names of files, or folders, that are packages and can be searched by imports as they are."""


def is_installed(file: str) -> bool:
    """Whether the file of a module is one of an installed package, whatever the name of its folder is.

    A folder that `pip install --target` has filled may have modules of the user, too.
    """
    parts = Path(file).parts
    if any(part in _INSTALLED or part.endswith(_BUILT) for part in parts):
        return True
    return _is_listed(os.path.abspath(file))


@functools.cache
def _is_listed(path: str) -> bool:
    """Whether the list of an installation in one of the folders above a file names it."""
    file = Path(path)
    return any(file.relative_to(folder).as_posix() in _installed_in(str(folder)) for folder in file.parents)


@functools.cache
def _installed_in(folder: str) -> frozenset[str]:
    """The files that the lists of installations in a folder name, relative to it.

    Metadata without such a list say nothing: an editable installation leaves an .egg-info beside the user's code.
    """
    names: set[str] = set()
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            # The first column is the name. One with a comma, which would be in quotes, is none of a module.
            if entry.endswith(".dist-info"):
                names.update(line.partition(",")[0] for line in _lines_of(folder, entry, "RECORD"))
            elif entry.endswith(".egg-info"):
                listed = _lines_of(folder, entry, "installed-files.txt")
                names.update(line.removeprefix("../") for line in listed if line.startswith("../"))
    return frozenset(names)


def _lines_of(*path: str) -> list[str]:
    """The lines of a file; none where there is none."""
    try:
        return Path(*path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _end_of_standard_library() -> int:
    """The position in `sys.path` after Python's own modules; 0 without them."""
    folders = set()
    for name in ("stdlib", "platstdlib"):
        folder = os.path.realpath(sysconfig.get_path(name))
        folders |= {folder, os.path.join(folder, "lib-dynload")}
    end = 0
    for place, entry in enumerate(sys.path, 1):
        if os.path.realpath(entry) in folders:
            end = place
    return end


def import_libraries(names: str) -> None:
    """Import installed libraries for processes that are forks of this one.

    Args:
        names: their modules, separated by commas.

    Raises:
        ImportError: one is not installed, or its import leaves what a fork does not have.
    """
    for name in filter(None, names.split(",")):
        file = getattr(importlib.import_module(name.strip()), "__file__", None)
        if file and not is_installed(file):
            # Edits between two runs would have no effect.
            raise ImportError(f"{file} is no file of an installed library, and runs import other code themselves")
    if threading.active_count() > 1 or ("torch" in sys.modules and sys.modules["torch"].cuda.is_initialized()):
        raise ImportError("the import starts a thread or CUDA, which forks of the process do not have")


@functools.cache
def check_libraries(names: str) -> None:
    """Import libraries as `import_libraries`, in a process of its own.

    Raises:
        ConfigError: this fails; the line names the reason.
    """
    command = command_of_call(__name__, "import_libraries", (names,))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        *_, reason = f"exit code {done.returncode}", *done.stderr.decode(errors="replace").strip().splitlines()
        raise ConfigError(f"--preload {names}: {reason.rstrip('.')}; name installed libraries, separated by commas.")


_importing = 0
"""Number of imports of user-defined modules that are in progress."""


def is_importing() -> bool:
    """Whether the running code is called by the import of a user-defined module."""
    return _importing > 0


def is_reference(name: str) -> bool:
    """Whether the name is of the form `module:function`, or `module:Class.function`; `m.py:train` names a file."""
    module, _, function = name.partition(":")
    if module.endswith((".py", ".ipynb")):
        return False
    return all(name.isidentifier() for name in [*module.split("."), *function.split(".")])


def import_function(reference: str, *, flag: str) -> Callable[..., Any]:
    """Import the function that `module:function` names; the working folder is searched, too.

    Args:
        reference: `package.module:function`, or `package.module:Class.function`.
        flag: the flag or field to name in an error.

    Raises:
        UnknownNameError: there is no such module, or no such function in it.
        UserCodeError: the module is there and failed to import; the cause is chained.
    """
    given = f"{flag}={reference}"
    if not is_reference(reference):
        raise UnknownNameError(f"{given}: {_way_out(reference)}.")
    module_name, _, function_name = reference.partition(":")
    if module_name == "__main__":
        raise UnknownNameError(
            f"{given}: each rank has another __main__; pass the object itself to sweep(), or name a module."
        )
    try:
        module = _import(module_name)
    except (Exception, SystemExit) as error:
        # A missing module other than this one or its parents is missing inside this one.
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module_name}.".startswith(f"{missing}."):
            raise UnknownNameError(
                f"{given}: no module named {missing!r}; run from the folder that contains it, or install it."
            ) from error
        cause = f"{type(error).__name__}: {error}"
        # The message of a SyntaxError has its place.
        if not isinstance(error, SyntaxError):
            place = traceback.extract_tb(error.__traceback__)[-1]
            cause += f" ({Path(place.filename).name}, line {place.lineno})"
        raise UserCodeError(f"{given}: your module was found but failed to import: {cause}.") from error
    function: Any = module
    for name in function_name.split("."):
        function = getattr(function, name, None)
    if not callable(function):
        meant = did_you_mean(function_name, [*vars(module)])
        found = getattr(module, "__file__", None) or "built into Python"
        here = Path(f"{module_name}.py")
        if here.exists() and os.path.realpath(found) != os.path.realpath(here):
            # A module of Python or of a package has the name of the user's.
            meant = f"./{here} is another file: rename it, or "
        raise UnknownNameError(
            f"{given}: module {module_name} ({found}) has no function {function_name}; {meant}give the name of one."
        )
    return function


def _way_out(reference: str) -> str:
    """How to name the function that a text may mean."""
    file, _, function = reference.partition(":")
    module = ".".join(Path(file.removesuffix(".py")).parts)
    if is_reference(f"{module}:{function}"):
        return f"name it {module}:{function}"
    if "-" in module:
        return "rename the file or the folder: a module's name has no hyphen"
    return "name a function as module:function: m:train for the function train of m.py in this folder"


def try_import(module: str) -> None:
    """Import a user-defined module, as a module may extend the search path of the modules that it imports.

    A failure is not reported here: `import_function` of the same module reports it. A script is not imported, since it
    would run.
    """
    if is_program(module):
        return
    with contextlib.suppress(Exception, SystemExit):
        _import(module)


def _import(module_name: str) -> ModuleType:
    global _importing
    search_working_folder()
    _importing += 1
    try:
        return importlib.import_module(module_name)
    finally:
        _importing -= 1
