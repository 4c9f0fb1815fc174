"""Data sets by name: built-in or user-defined."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dmls_ray.util.errors import DataError, UnknownNameError, UserCodeError
from dmls_ray.util.importing import import_function, is_reference
from dmls_ray.workloads.classification.datasets import DATASET_NAMES, Samples, Source, builtin_dataset


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
        import_function(name, flag="dataset")
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
    return spec.open(name, data_dir) if spec else _open_user_dataset(name, data_dir)


cached_source = functools.cache(find_source)
"""`find_source`, once in each process: listing a folder of 60,000 files takes longer than many runs."""


def _open_user_dataset(name: str, data_dir: str | None) -> Source:
    """The data set that the user's function returns.

    The function is called once per split with `split` and, if it has that parameter, `data_dir`. It returns a
    map-style data set.

    Raises:
        UserCodeError: the function fails or returns something else.
        DataError: a split is empty.
    """
    function = import_function(name, flag="dataset")
    arguments = {"data_dir": data_dir} if "data_dir" in inspect.signature(function).parameters else {}
    halves: list[Samples] = []
    for split in ("train", "test"):
        try:
            half = function(split, **arguments)
        except Exception as error:
            raise _user_error(name, "function", error) from error
        if not (hasattr(half, "__len__") and hasattr(half, "__getitem__")):
            raise UserCodeError(
                f"dataset={name}: your function returned {type(half).__name__}; return a map-style data set: "
                "len() and [index] -> (image, label)."
            )
        if not len(half):
            raise DataError(f"dataset={name}: the {split} split is empty.")
        halves.append(half)
    try:
        digest = _spot_check(function, halves)
    except Exception as error:
        raise _user_error(name, "data set", error) from error
    return Source(lambda: _count_classes(name, halves), f"own {name} {digest}", lambda: (halves[0], halves[1]))


def _count_classes(name: str, halves: list[Samples]) -> int:
    """The attribute `classes` of the data set, a number or a list; without it, the largest label plus 1."""
    classes = getattr(halves[0], "classes", None)
    if classes is not None:
        return classes if isinstance(classes, int) else len(classes)
    try:
        return 1 + max(int(half[index][1]) for half in halves for index in range(len(half)))
    except Exception as error:
        raise _user_error(name, "data set", error) from error


def _user_error(name: str, failed: str, error: Exception) -> UserCodeError:
    return UserCodeError(f"dataset={name}: your {failed} failed: {type(error).__name__}: {error}.")


def _spot_check(function: Callable[..., object], halves: list[Samples]) -> str:
    """A digest of the function's module and of 16 samples of each split, since a name does not identify content."""
    source = inspect.getsourcefile(inspect.unwrap(function))  # it may be decorated, with functools.cache say
    digest = hashlib.sha256(Path(source).read_bytes() if source and Path(source).exists() else b"")
    for half in halves:
        digest.update(str(len(half)).encode())
        for index in np.unique(np.linspace(0, len(half) - 1, 16).astype(int)):
            image, label = half[int(index)]
            digest.update(np.ascontiguousarray(image).tobytes() + str(int(label)).encode())
    return digest.hexdigest()
