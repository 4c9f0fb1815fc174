"""Built-in data sets, one file each: `datasets/<name>.py` defines `DATASET`. A new file is a new data set."""

from __future__ import annotations

import importlib
import pkgutil

from dmls_ray.workloads.classification.data.source import DatasetSpec

DATASET_NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
"""Names of the built-in data sets."""


def builtin_dataset(name: str) -> DatasetSpec | None:
    """The built-in data set of a name with or without options; None if there is none."""
    kind, colon, _ = name.partition(":")
    if kind not in DATASET_NAMES:
        return None
    spec: DatasetSpec = importlib.import_module(f"{__name__}.{kind}").DATASET
    return spec if spec.has_options or not colon else None
