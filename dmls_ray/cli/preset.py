"""`Preset`: what a sweep script asks. It imports little, since the supervisor of a sweep loads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmls_ray.config.grid import Variant


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What a sweep script asks."""

    name: str
    """Name of the results folder."""
    axis: str | None
    """Field that the sweep asks about; None for the first that varies."""
    axes: Mapping[str, Any]
    """Values of fields for which no flag is given."""
    question: str = ""
    """Question that the sweep asks; shown by --help. Without one, the report asks about what varies."""
    description: str = ""
    """Text that --help shows instead."""
    variants: Sequence[Variant] = ({},)
    """Fields that are changed together at each point of the grid. A flag for any of them asks for a grid instead."""
    options: Mapping[str, Any] | None = None
    """Values of options for which no flag is given."""
    workload: str | None = None
    """Workload that runs unless a flag names another; by default image classification."""
    train: str | None = None
    """Training function that runs instead of a workload, `module:function`."""
    layout: str | None = None
    """Name of a table in `analysis.table.layouts` that is shown instead of the sweep's."""
    has_modules: bool = True
    """Whether the folder of the script has modules to import. Without, a module of the user that has the name of a
    script, as optimizer.py, is found in the working folder."""
