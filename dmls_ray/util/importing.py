"""Import of a user-defined `module:function`, with a precise reason where it fails."""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dmls_ray.util.errors import UnknownNameError, UserCodeError

_importing = 0
"""Number of imports of user-defined modules that are in progress."""


def is_importing() -> bool:
    """Whether the running code is called by the import of a user-defined module."""
    return _importing > 0


def is_reference(name: str) -> bool:
    """Whether the name is of the form `module:function`."""
    module, colon, function = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in module.split(".")) and function.isidentifier()


def import_function(reference: str, *, flag: str) -> Callable[..., Any]:
    """Import the function that `module:function` names; the working folder is searched, too.

    Args:
        reference: `package.module:function`.
        flag: the flag or field to name in an error.

    Raises:
        UnknownNameError: there is no such module, or no such function in it.
        UserCodeError: the module is there and failed to import; the cause is chained.
    """
    module_name, _, function_name = reference.partition(":")
    if not is_reference(reference):
        meant = module_name.removesuffix(".py").replace("/", ".")
        raise UnknownNameError(f"{flag}={reference}: name a function as module:function, {meant}:train, say.")
    search_working_folder()
    global _importing
    _importing += 1
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # The missing module is the user-defined one or its parent; any other is missing inside the user-defined module.
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UnknownNameError(
                f"{flag}={reference}: no module named {error.name!r}; run from the folder that contains it, or install "
                "it."
            ) from error
        raise UserCodeError(_failed(reference, flag, error)) from error
    except (Exception, SystemExit) as error:
        raise UserCodeError(_failed(reference, flag, error)) from error
    finally:
        _importing -= 1
    function = getattr(module, function_name, None)
    if not callable(function):
        offered = sorted(
            name
            for name, item in vars(module).items()
            if callable(item) and not name.startswith("_") and getattr(item, "__module__", None) == module_name
        )
        raise UnknownNameError(
            f"{flag}={reference}: module {module_name!r} has no function {function_name!r}; "
            f"it has {', '.join(offered) or 'none'}."
        )
    return function


def try_import(module: str) -> None:
    """Import a user-defined module, as a module may extend the search path of the modules that it imports.

    A failure is not reported here: `import_function` of the same module reports it.
    """
    global _importing
    search_working_folder()
    _importing += 1
    try:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(module)
    finally:
        _importing -= 1


def search_working_folder() -> None:
    """Let imports search the working folder, too."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        # Last, so that a user's file does not replace an installed package of the same name.
        sys.path.append(here)


def _failed(reference: str, flag: str, error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{flag}={reference}: your module was found but failed to import: {type(error).__name__}: {error} "
        f"({Path(place.filename).name}, line {place.lineno})."
    )
