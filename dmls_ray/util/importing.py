"""Import of a user-defined `module:function`, with a precise reason where it fails."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from dmls_ray.util.errors import UnknownNameError, UserCodeError
from dmls_ray.util.module_path import is_in_standard_library, search_working_folder

_importing = 0
"""Number of imports of user-defined modules that are in progress."""


def is_importing() -> bool:
    """Whether the running code is called by the import of a user-defined module."""
    return _importing > 0


def is_reference(name: str) -> bool:
    """Whether the name is of the form `module:function`, or `module:Class.function`."""
    module, colon, function = name.partition(":")
    return bool(colon) and _is_dotted_name(module) and _is_dotted_name(function)


def names_file(name: str) -> bool:
    """Whether a name means a function in a file, and names the file in place of the module: `nets/m.py:net`, say."""
    file, colon, _ = name.partition(":")
    return file.endswith((".py", ".ipynb")) or (bool(colon) and ("/" in file or "-" in file))


def import_function(reference: str, *, flag: str) -> Callable[..., Any]:
    """Import the function that `module:function` names; the working folder is searched, too.

    Args:
        reference: `package.module:function`, or `package.module:Class.function`.
        flag: the flag or field to name in an error.

    Raises:
        UnknownNameError: there is no such module, or no such function in it.
        UserCodeError: the module is there and failed to import; the cause is chained.
    """
    if not is_reference(reference) or names_file(reference):
        raise UnknownNameError(f"{flag}={reference}: {_way_out(reference)}.")
    module_name, _, function_name = reference.partition(":")
    if module_name == "__main__":
        raise UnknownNameError(
            f"{flag}={reference}: each rank has another __main__; pass the object itself to sweep(), or name a module."
        )
    module = _imported(module_name, f"{flag}={reference}")
    function: Any = module
    for name in function_name.split("."):
        function = getattr(function, name, None)
    if another := _another_module(module_name, is_missing=function is None):
        raise UnknownNameError(f"{flag}={reference}: {another}.")
    if not callable(function):
        found = "no function" if function is None else f"a value of type {type(function).__name__}, and no function,"
        raise UnknownNameError(
            f"{flag}={reference}: module {module_name!r} has {found} {function_name!r}; "
            f"it has {', '.join(_functions_of(module)) or 'none'}."
        )
    return function


def try_import(module: str) -> None:
    """Import a user-defined module, as a module may extend the search path of the modules that it imports.

    A failure is not reported here: `import_function` of the same module reports it.
    """
    with contextlib.suppress(Exception, SystemExit):
        _import(module)


def _imported(module_name: str, given: str) -> ModuleType:
    try:
        return _import(module_name)
    except ModuleNotFoundError as error:
        # The missing module is the user-defined one or its parent; any other is missing inside the user-defined module.
        if not error.name or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UserCodeError(_failed(given, error)) from error
        reason = (
            _another_module(module_name, is_missing=True)
            or f"no module named {error.name!r}; run from the folder that contains it, or install it"
        )
        raise UnknownNameError(f"{given}: {reason}.") from error
    except (Exception, SystemExit) as error:
        raise UserCodeError(_failed(given, error)) from error


def _import(module_name: str) -> ModuleType:
    global _importing
    search_working_folder()
    _importing += 1
    try:
        return importlib.import_module(module_name)
    finally:
        _importing -= 1


def _failed(given: str, error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{given}: your module was found but failed to import: {type(error).__name__}: {error} "
        f"({Path(place.filename).name}, line {place.lineno})."
    )


def _another_module(module_name: str, *, is_missing: bool) -> str:
    """Why the file of the working folder is not the module of its name; empty if it is, or if there is none.

    Args:
        module_name: the module.
        is_missing: what was asked for is not in the module that was found. Else only Python's own modules count: of two
            modules of the user, the search path decides.
    """
    top = module_name.partition(".")[0]
    here = Path(f"{top}.py")
    if top not in sys.modules or not here.exists():
        return ""
    found = getattr(sys.modules[top], "__file__", None)
    if found is not None and here.samefile(found):
        return ""
    if not is_missing and not is_in_standard_library(found):
        return ""
    return f"module {top} is {found or 'built into Python'}, and ./{here} is not it; rename yours"


def _functions_of(module: ModuleType) -> list[str]:
    """The names that may be meant: of what is callable and defined in the module."""
    return sorted(
        name
        for name, item in vars(module).items()
        if callable(item)
        and not name.startswith("_")
        and (getattr(item, "__module__", None) == module.__name__ or isinstance(item, functools.partial))
    )


def _way_out(reference: str) -> str:
    """How to name the function that a text means."""
    file, _, function = reference.partition(":")
    if file.endswith(".ipynb"):
        return "a notebook is no module; call sweep() in it with the function itself"
    module = ".".join(Path(file.removesuffix(".py")).parts)
    if _is_dotted_name(module) and function:
        return f"name it {module}:{function.removesuffix('()')}"
    return "name a function as module:function: m:train for the function train of m.py in this folder"


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))
