"""Data sets by name: built-in or user-defined."""

from __future__ import annotations

import functools

from dmls_ray.util.errors import UnknownNameError
from dmls_ray.util.importing import is_reference
from dmls_ray.workloads.classification.data.source import Source
from dmls_ray.workloads.classification.data.user_dataset import open_user_dataset, user_function
from dmls_ray.workloads.classification.datasets import DATASET_NAMES, builtin_dataset


def check_source(name: str, data_dir: str | None) -> None:
    """Refuse, without decoding or downloading, what `find_source` would refuse.

    Raises:
        UnknownNameError: there is no such data set.
        ConfigError: the options of a synthetic data set are wrong.
        DataError: an image folder does not have the expected layout.
        UserCodeError: the user's module failed to import.
    """
    if spec := builtin_dataset(name):
        spec.check(name, data_dir)
    elif is_reference(name):
        user_function(name)
    else:
        raise UnknownNameError(
            f"dataset={name} is unknown; choose from {', '.join(DATASET_NAMES)}, or a user-defined module:function."
        )


def find_source(name: str, data_dir: str | None) -> Source:
    """The data set of that name, downloaded if its files are missing.

    Raises:
        UnknownNameError, ConfigError, DataError, UserCodeError: as `check_source`.
        DataError: files are missing and cannot be downloaded.
    """
    check_source(name, data_dir)
    spec = builtin_dataset(name)
    return spec.open(name, data_dir) if spec else open_user_dataset(name, data_dir)


@functools.cache
def cached_source(name: str, data_dir: str | None) -> Source:
    """`find_source`, once in each process: listing a folder of 60,000 files takes longer than many runs."""
    return find_source(name, data_dir)
