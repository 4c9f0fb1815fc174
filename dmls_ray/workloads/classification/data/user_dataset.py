"""User-defined data sets: `module:function`."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dmls_ray.util.errors import DataError, UserCodeError
from dmls_ray.util.importing import import_function
from dmls_ray.workloads.classification.data.source import Samples, Source


def user_function(name: str) -> Callable[..., Samples]:
    """The function of a user-defined data set.

    Raises:
        UnknownNameError, UserCodeError: as `import_function`.
    """
    return import_function(name, flag="dataset")


def open_user_dataset(name: str, data_dir: str | None) -> Source:
    """The data set that the user's function returns.

    The function is called once per split with `split` and, if it has that parameter, `data_dir`. It returns a
    map-style data set.

    Raises:
        UserCodeError: the function fails or returns something else.
        DataError: a split is empty.
    """
    function = user_function(name)
    arguments = {"data_dir": data_dir} if "data_dir" in inspect.signature(function).parameters else {}
    halves: list[Samples] = []
    for split in ("train", "test"):
        try:
            half = function(split, **arguments)
        except Exception as error:
            raise UserCodeError(f"dataset={name}: your function failed: {type(error).__name__}: {error}.") from error
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
        raise _failed_data_set(name, error) from error
    return Source(lambda: _count_classes(name, halves), f"own {name} {digest}", lambda: (halves[0], halves[1]))


def _count_classes(name: str, halves: list[Samples]) -> int:
    """The attribute `classes` of the data set, a number or a list; without it, the largest label plus 1."""
    classes = getattr(halves[0], "classes", None)
    if classes is not None:
        return classes if isinstance(classes, int) else len(classes)
    try:
        return 1 + max(int(half[index][1]) for half in halves for index in range(len(half)))
    except Exception as error:
        raise _failed_data_set(name, error) from error


def _failed_data_set(name: str, error: Exception) -> UserCodeError:
    return UserCodeError(f"dataset={name}: your data set failed: {type(error).__name__}: {error}.")


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
