"""What is run as the main program: a file, `train.py`, or a module, `-m package.train`, as after `python`."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MODULE = "-m "


def is_program(what: str) -> bool:
    """Whether a text names a program and not, say, a function."""
    return what.endswith(".py") or what.startswith(_MODULE)


def module_of(program: str) -> str:
    """The name of the module; empty for a file."""
    return program.removeprefix(_MODULE).strip() if program.startswith(_MODULE) else ""


def folder_name_of(program: str) -> str:
    """The name of the results folder of a program: `train`, or `package-train`."""
    return re.sub(r"\W+", "-", module_of(program)) or Path(program).stem


def module_beside(path: str) -> str:
    """How a file is named as a module of its package: `-m package.train`, seen from the working folder."""
    names = Path(os.path.relpath(path)).with_suffix("").parts
    if len(names) == 1:
        folder = Path(path).absolute().parent
        return f"{_MODULE}{folder.name}.{names[0]} in the folder {folder.parent}"
    return f"{_MODULE}{'.'.join(names)}" if ".." not in names else ""
