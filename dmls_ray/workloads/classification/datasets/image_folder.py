"""A folder of images: train/<class>/<image> and test/<class>/<image> under data_dir.

Hidden files and folders are left out. All images below a class's folder are of that class.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_ray.util.errors import DataError
from dmls_ray.util.file_digest import digest_of_files, files_below
from dmls_ray.workloads.classification.datasets import DatasetSpec, Source
from dmls_ray.workloads.image_files import SUFFIXES, is_image_name, read_rgb

if TYPE_CHECKING:
    from PIL import Image

_LAYOUT = "it holds train/<class>/<image> and test/<class>/<image>"


class ImageFolder:
    """The images of a split, sorted by class and path.

    Raises:
        DataError: the folder of a class has no image.
    """

    def __init__(self, root: Path) -> None:
        self.classes = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        self.samples: list[tuple[str, int]] = []
        """Path and label of each image."""
        for label, name in enumerate(self.classes):
            images = sorted(filter(is_image_name, files_below(str(root / name))), key=os.path.split)
            if not images:
                raise DataError(f"{root / name} has no image ({', '.join(SUFFIXES)}); add some, or remove the folder.")
            self.samples += [(path, label) for path in images]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.samples[index]
        return read_rgb(path), label


def _root(data_dir: str | None) -> Path:
    if data_dir is None:
        raise DataError(f"dataset=image_folder needs data_dir; name the folder: {_LAYOUT}.")
    root = Path(data_dir).expanduser()
    for split in ("train", "test"):
        if not (root / split).is_dir():
            raise DataError(f"data_dir={data_dir}: there is no folder {root / split}; {_LAYOUT}.")
    return root


def _open(name: str, data_dir: str | None) -> Source:
    root = _root(data_dir)
    train, test = ImageFolder(root / "train"), ImageFolder(root / "test")
    if train.classes != test.classes:
        differing = sorted(set(train.classes) ^ set(test.classes))
        raise DataError(f"data_dir={root}: train and test do not hold the same classes: {', '.join(differing)}.")
    if len(train.classes) < 2:
        raise DataError(f"data_dir={root}: a classifier needs two classes or more, and there are {train.classes}.")
    return Source(len(train.classes), lambda: _fingerprint(name, root), lambda: (train, test))


def _fingerprint(name: str, root: Path) -> str:
    """A digest of all files. An image's folder is its label, so the paths have the labels."""
    return f"{name} {digest_of_files(root / 'train')} {digest_of_files(root / 'test')}"


DATASET = DatasetSpec(
    open=_open,
    train_samples=lambda name: None,
    check=lambda name, data_dir: _root(data_dir),
    has_user_files=True,
)
