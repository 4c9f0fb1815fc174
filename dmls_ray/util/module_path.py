"""The search path of modules: the folders of the user on it, the same in the driver and in every rank."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

STANDARD_LIBRARY = ""
"""Stands for Python's own modules among the folders of `module_path`."""


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
    """The search path without the folders of installed packages; `STANDARD_LIBRARY` is where Python's own are."""
    end = _end_of_standard_library()
    return (*_of_the_user(sys.path[:end]), STANDARD_LIBRARY, *_of_the_user(sys.path[end:]))


def search_module_path(path: Sequence[str]) -> None:
    """Let imports search the folders of another process's `module_path` where that process does.

    Other folders of this process come after them, on the same side of Python's own modules.
    """
    before = list(path[: path.index(STANDARD_LIBRARY)]) if STANDARD_LIBRARY in path else list(path)
    after = list(path[len(before) + 1 :])
    end = _end_of_standard_library()
    others = [
        [entry for entry in part if os.path.abspath(entry) not in path] for part in (sys.path[:end], sys.path[end:])
    ]
    sys.path[:] = [*before, *others[0], *after, *others[1]]


def is_installed(file: str) -> bool:
    """Whether the file of a module is one of an installed package."""
    return not _INSTALLED.isdisjoint(Path(file).parts)


_INSTALLED = frozenset({"site-packages", "dist-packages"})


def _end_of_standard_library() -> int:
    """The position in `sys.path` after Python's own modules; 0 without them."""
    folders = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    folders |= {os.path.join(folder, "lib-dynload") for folder in folders}
    return max((place for place, entry in enumerate(sys.path, 1) if os.path.realpath(entry) in folders), default=0)


def _of_the_user(entries: Iterable[str]) -> list[str]:
    installed = tuple(os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix))
    folders = filter(os.path.exists, dict.fromkeys(map(os.path.abspath, entries)))
    return [folder for folder in folders if not os.path.realpath(folder).startswith(installed)]
