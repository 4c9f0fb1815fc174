"""The launchers by name, with what configurations need to know about them: `dmls_ray/launchers/<name>.py` is one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LauncherFacts:
    """What configurations need to know about a launcher."""

    one_process: bool = False
    """It runs the only rank of a run, so world_size is 1."""
    backends: tuple[str, ...] = ()
    """Backends that only work with this launcher."""


LAUNCHERS = {
    "ray": LauncherFacts(),
    "inline": LauncherFacts(one_process=True),
    "spawn": LauncherFacts(),
    "torchrun": LauncherFacts(),
    "mpirun": LauncherFacts(backends=("mpi",)),
}
"""Every launcher, in the order of the choices; `ray` is the worker group and no module of `dmls_ray/launchers`."""


def any_of(names: Iterable[str]) -> str:
    """`a, b or c`."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
