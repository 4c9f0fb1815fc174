"""Names and limits of the launchers, read from the source of `dmls_ray/launchers/*.py` without importing it.

A module there is a launcher if it assigns `LAUNCHER`. Its file name is the launcher's name. It may also assign
`ONE_PROCESS = True`, `BACKENDS = ("mpi",)` and `POSITION`, its place among the choices.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "launchers"

_ASSIGNMENT = re.compile(r"^(LAUNCHER|ONE_PROCESS|BACKENDS|POSITION) = (.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class LauncherFacts:
    """What configurations need to know about a launcher."""

    one_process: bool = False
    """It runs the only rank of a run, so world_size is 1."""
    backends: tuple[str, ...] = ()
    """Backends that only work with this launcher."""


@functools.cache
def launcher_facts() -> dict[str, LauncherFacts]:
    """Every launcher by name; the first, `ray`, is the worker group, which is none of these modules."""
    launchers = []
    for path in FOLDER.glob("*.py"):
        values = dict(_ASSIGNMENT.findall(path.read_text(encoding="utf-8")))
        if "LAUNCHER" in values:
            facts = LauncherFacts(
                one_process=ast.literal_eval(values.get("ONE_PROCESS", "False")),
                backends=ast.literal_eval(values.get("BACKENDS", "()")),
            )
            launchers.append((ast.literal_eval(values.get("POSITION", "100")), path.stem, facts))
    launchers.sort(key=lambda item: item[:2])
    return {"ray": LauncherFacts(), **{name: facts for _, name, facts in launchers}}


def any_of(names: Iterable[str]) -> str:
    """`a, b or c`."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
