"""Data sets by name: built-in or user-defined."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_ray.util.digests import digest_of_files, text_digest
from dmls_ray.util.errors import DataError, DmlsRayError, UnknownNameError, UserCodeError
from dmls_ray.util.importing import is_reference
from dmls_ray.workloads.classification.datasets import DATASETS, Samples, Source, Split, builtin_dataset
from dmls_ray.workloads.user_function.sent import SentName, code_of, load_named


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
    elif isinstance(name, SentName) or is_reference(name):
        load_named(name, flag="dataset")
    else:
        raise UnknownNameError(
            f"dataset={name} is unknown; choose from {', '.join(DATASETS)}, or a user-defined module:function."
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


def fingerprint_of(name: str, data_dir: str | None) -> str:
    """The fingerprint of a data set as it is now, whatever this process has read of it before.

    Raises:
        UnknownNameError, ConfigError, DataError, UserCodeError: as `find_source`.
    """
    with nullcontext() if builtin_dataset(name) else _seeded():
        return find_source(name, data_dir).fingerprint


def read_sample(name: str, split: Split, samples: Samples, index: int) -> tuple[Any, int]:
    """A sample of a data set: its image as the data set gives it, and its label.

    Args:
        name: the data set, for errors.
        split: which half `samples` are.
        samples: the half.
        index: of the sample.

    Raises:
        DataError: a file cannot be read.
        UserCodeError: the data set fails, or gives something else than an image and the number of a class.
    """
    try:
        image, label = samples[index]
        number = np.asarray(label).item()
    except DmlsRayError:
        raise
    except Exception as error:
        raise UserCodeError(
            f"dataset={name}: {split} sample {index} is no (image, label): {type(error).__name__}: {error}."
        ) from error
    if not isinstance(number, int | float) or number < 0 or not float(number).is_integer():
        raise UserCodeError(f"dataset={name}: {split} label {index} is {number!r}; give a whole number from 0 on.")
    return image, int(number)


_SPOT_CHECKS = 64
"""Samples of a split that a fingerprint reads at least."""

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
    function = _current_function(name)
    arguments = {"data_dir": data_dir} if "data_dir" in inspect.signature(function).parameters else {}

    def open_half(split: Split) -> Samples:
        try:
            half: Samples = function(split, **arguments)
            count = len(half)
        except Exception as error:
            raise UserCodeError(
                f"dataset={name}: your function returned no map-style data set: {type(error).__name__}: {error}."
            ) from error
        if not count:
            raise DataError(f"dataset={name}: the {split} split is empty.")
        return half

    halves: dict[Split, Samples] = {"train": open_half("train"), "test": open_half("test")}

    def count_classes() -> int:
        declared = getattr(halves["train"], "classes", None)
        if declared is not None:
            return len(declared) if hasattr(declared, "__len__") else int(declared)
        labels = [
            read_sample(name, split, half, index)[1] for split, half in halves.items() for index in range(len(half))
        ]
        return 1 + max(labels)

    return Source(
        count_classes,
        lambda: f"own {name} {_digest(name, arguments.get('data_dir'), halves)}",
        lambda: (halves["train"], halves["test"]),
    )


_imported: dict[str, dict[str, str]] = {}
"""The sources of each data set, as this process has imported them."""


def _current_function(name: str) -> Callable[..., Any]:
    """The function of the sources as they are now: for an earlier sweep, this process may have imported older ones."""
    sources = code_of(name)
    if _imported.setdefault(name, sources) != sources:
        _imported[name] = sources
        for file in sources:
            sys.modules.pop(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."), None)
    return load_named(name, flag="dataset")


def _digest(name: str, data_dir: str | None, halves: Mapping[Split, Samples]) -> str:
    """A digest of what a user-defined data set contains besides its code: of its attribute `fingerprint`.

    Without that attribute, of all files of data_dir, of all labels, and of samples: of some samples if files or an
    attribute `targets` or `labels` show what changes, else of all.
    """
    if all(hasattr(half, "fingerprint") for half in halves.values()):
        return text_digest(*(str(half.fingerprint) for half in halves.values()))  # type: ignore[attr-defined]
    digest = hashlib.sha256()
    has_files = data_dir is not None and Path(data_dir).expanduser().exists()
    if data_dir is not None and has_files:
        digest.update(digest_of_files(Path(data_dir).expanduser()).encode())
    with _seeded():
        for split, half in halves.items():
            labels = listed_labels(half)
            digest.update(f"{len(half)} {labels}\n".encode())
            some = np.unique(np.linspace(0, len(half) - 1, _SPOT_CHECKS).astype(int)).tolist()
            # Augmented images differ each time that they are read; then the labels alone identify the samples.
            read = functools.partial(_content, name, split, half)
            is_random = any(read(index)[0] != read(index)[0] for index in some)
            for index in some if has_files or labels is not None else range(len(half)):
                content, label = read(index)
                digest.update((b"" if is_random else content) + str(label).encode())
    return digest.hexdigest()[:32]


def _content(name: str, split: Split, samples: Samples, index: int) -> tuple[bytes, int]:
    """The bytes of an image, and its label."""
    image, label = read_sample(name, split, samples, index)
    return np.ascontiguousarray(image).tobytes(), label


@contextmanager
def _seeded() -> Iterator[None]:
    """Fixed random numbers, so that augmented samples are the same in each process; the generators do not advance."""
    from dmls_ray.training.process import random_state, seed_worker, set_random_state

    before = random_state()
    seed_worker(0)
    try:
        yield
    finally:
        set_random_state(before)


def listed_labels(half: Samples) -> list[Any] | None:
    """All labels of a data set that has them in an attribute, as those of torchvision have; reading them is fast."""
    for name in ("targets", "labels"):
        labels = np.asarray(getattr(half, name, ()))
        if labels.shape == (len(half),):
            listed: list[Any] = labels.tolist()
            return listed
    return None


def labels_of(name: str, split: Split, half: Samples) -> NDArray[np.int64]:
    """All labels of a half of a data set; where it does not list them, each sample is read."""
    labels = listed_labels(half)
    if labels is None:
        labels = [read_sample(name, split, half, index)[1] for index in range(len(half))]
    return np.asarray(labels, dtype=np.int64)


def chosen_by_class(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The indices of `count` samples, ascending: of each class equally many, evenly spread over its samples.

    A class with fewer samples than its share has all of them, and the others share the rest.
    """
    of_class = sorted((np.flatnonzero(labels == label) for label in np.unique(labels)), key=len)
    chosen = []
    left = count
    for number, indices in enumerate(of_class):
        share = min(len(indices), left // (len(of_class) - number))
        left -= share
        chosen.append(indices[np.arange(share) * len(indices) // max(share, 1)])
    return np.sort(np.concatenate(chosen))
