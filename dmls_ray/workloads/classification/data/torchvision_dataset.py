"""Data sets that torchvision downloads and unpacks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dmls_ray.util.errors import DataError
from dmls_ray.util.file_digest import digest_of_files, files_below
from dmls_ray.util.paths import cache_root
from dmls_ray.util.shared_lock import lock_with_notice
from dmls_ray.workloads.classification.datasets import DatasetSpec, Samples, Source, Split

_BY_FLAG: Mapping[Split, Mapping[str, Any]] = {"train": {"train": True}, "test": {"train": False}}


def torchvision_dataset(
    class_name: str,
    *,
    train_samples: int,
    folder: str,
    files: Sequence[str],
    splits: Mapping[Split, Mapping[str, Any]] = _BY_FLAG,
    unread: Sequence[str] = (),
) -> DatasetSpec:
    """A data set of torchvision with 10 classes.

    Args:
        class_name: its class in torchvision.datasets.
        train_samples: number of training samples.
        folder: where its unpacked files are, in the data folder.
        files: the archives that torchvision unpacks; if they are in the data folder, nothing is downloaded.
        splits: arguments that select a split.
        unread: unpacked files that neither split reads.
    """

    def open_halves(name: str, root: Path) -> tuple[Samples, Samples]:
        from torchvision import datasets

        make = getattr(datasets, class_name)
        # One rank of a machine downloads; the others wait and then find the files. The lock is not in the data
        # folder, which may be on a read-only disk.
        locks = cache_root() / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock = locks / f"{name}-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]}.lock"
        with lock_with_notice(str(lock), f"reads or downloads dataset={name}"):
            try:
                train, test = (make(str(root), **splits[split], download=True) for split in ("train", "test"))
            except (OSError, RuntimeError) as error:
                expected = ", ".join(str(root / file) for file in files)
                reason = " ".join(str(error).split())
                raise DataError(
                    f"dataset={name} is not in {root} and cannot be downloaded ({reason}); put there "
                    f"yourself: {expected}, or name another folder with data_dir."
                ) from error
        return train, test

    def open_source(name: str, data_dir: str | None) -> Source:
        root = _root(data_dir)
        # Unpacked files identify the data set, so missing files are downloaded first.
        halves = None if (root / folder).is_dir() else open_halves(name, root)
        return Source(10, lambda: fingerprint(name, data_dir), lambda: halves or open_halves(name, root))

    def fingerprint(name: str, data_dir: str | None) -> str:
        unpacked = _root(data_dir) / folder
        files = [file for file in files_below(str(unpacked)) if not file.endswith((".gz", *unread))]
        return f"torchvision {name} {digest_of_files(unpacked, files)}"

    return DatasetSpec(open=open_source, train_samples=lambda name: train_samples)


def _root(data_dir: str | None) -> Path:
    """The folder of the data set's files."""
    return Path(data_dir).expanduser() if data_dir else cache_root() / "downloads"


MNIST_FILES = tuple(
    f"{half}-{kind}.gz" for half in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
)
"""Archives of MNIST and of data sets in its format."""
