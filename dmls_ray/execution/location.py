"""Where the results of a sweep go."""

from __future__ import annotations

import re
from pathlib import Path

from dmls_ray.config.options import Options
from dmls_ray.storage.location import first_free_location
from dmls_ray.workloads.base import Workload


def results_location(options: Options) -> Path | str:
    """The results folder, or its URI. With `--fresh`, the first numbered one that holds no sweep.

    Raises:
        StoreError: the URI cannot be reached.
    """
    location = options.out or str(Path("results") / options.name)
    if options.fresh:
        return first_free_location(location)
    return location if options.is_remote else Path(location)


def folder_name(workload: Workload) -> str:
    """The name of the results folder where none is given: `module-function` for a function."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", workload.name.partition("#")[0]).strip("-") or "function"
