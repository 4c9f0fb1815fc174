"""A folder of images: train/<class>/<image> and test/<class>/<image> under data_dir.

Hidden files and folders are left out. All images below a class's folder are of that class.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_ray.util.errors import DataError
from dmls_ray.util.file_digest import digest_of_files, files_below
from dmls_ray.workloads.classification.datasets import DatasetSpec, Source
from dmls_ray.workloads.image_files import (
    MOST_EXAMINED,
    SUFFIXES,
    highest_level_in,
    is_image_name,
    notes_on_range,
    read_rgb,
)

if TYPE_CHECKING:
    from PIL import Image

_LISTED = 3
"""Files that a line names at most."""


class ImageFolder:
    """The images of a split, sorted by class and path.

    Raises:
        DataError: the folder of a class has no image.
    """

    def __init__(self, root: Path) -> None:
        self.classes = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        self.samples: list[tuple[str, int]] = []
        """Path and label of each image."""
        files = files_below(str(root))
        for label, name in enumerate(self.classes):
            below = files_below(str(root / name))
            images = sorted(filter(is_image_name, below), key=os.path.split)
            if not images:
                raise DataError(f"{root / name} has no image ({', '.join(SUFFIXES)}); add some, or remove the folder.")
            self.samples += [(path, label) for path in images]
        used = {path for path, _ in self.samples}
        self.left_out = sorted(path for path in files if path not in used)
        """Files that are no images by their names, or are in no class's folder."""

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.samples[index]
        return read_rgb(path), label


def _root(data_dir: str | None) -> Path:
    layout = "it holds train/<class>/<image> and test/<class>/<image>"
    if data_dir is None:
        raise DataError(f"dataset=image_folder needs data_dir; name the folder: {layout}.")
    root = Path(data_dir).expanduser()
    for split in ("train", "test"):
        if not (root / split).is_dir():
            raise DataError(f"data_dir={data_dir}: there is no folder {root / split}; {layout}.")
    return root


def _open(name: str, data_dir: str | None) -> Source:
    root = _root(data_dir)
    train, test = (ImageFolder(root / split) for split in ("train", "test"))
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise DataError(f"data_dir={root}: train and test do not hold the same classes; in one only: {', '.join(odd)}.")
    if len(train.classes) < 2:
        found = f"one class folder, {train.classes[0]}" if train.classes else "no class folder"
        raise DataError(f"data_dir={root}: train has {found}; a classifier needs two classes or more.")
    left_out = [*train.left_out, *test.left_out]
    return Source(
        len(train.classes),
        lambda: _fingerprint(name, data_dir),
        lambda: (train, test),
        lambda: [*_note_on_left_out(left_out), *_notes_on_levels(name, train)],
    )


def _notes_on_levels(name: str, train: ImageFolder) -> list[str]:
    some = train.samples[:: math.ceil(len(train) / MOST_EXAMINED)]
    return notes_on_range(name, [highest_level_in(path) for path, _ in some])


def _note_on_left_out(paths: Sequence[str]) -> list[str]:
    if not paths:
        return []
    listed = ", ".join(paths[:_LISTED])
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return [
        f"dataset=image_folder leaves out {listed}{more}: an image is in a class's folder, and its name ends in "
        f"{', '.join(SUFFIXES)}."
    ]


def _fingerprint(name: str, data_dir: str | None) -> str:
    """A digest of all files. An image's folder is its label, so the paths have the labels."""
    root = Path(data_dir or "").expanduser()
    halves = [root / split for split in ("train", "test")]
    is_here = data_dir is not None and all(half.is_dir() for half in halves)
    return " ".join([name, *map(digest_of_files, halves)]) if is_here else ""


DATASET = DatasetSpec(
    open=_open,
    train_samples=lambda name: None,
    check=lambda name, data_dir: _root(data_dir),
    fingerprint=_fingerprint,
)
